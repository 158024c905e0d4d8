"""What Python files import, read off their source."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def imports(path: Path, *, at_import: bool = False) -> Iterator[str]:
    """Full names of what a file imports anywhere; `from a import b` gives both a and a.b, as b may be a module.

    With `at_import` only what is imported when the file itself is, not what its functions import when they are called.
    """
    waiting: list[ast.AST] = [ast.parse(path.read_text(encoding="utf-8"))]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path.relative_to(ROOT)}:{node.lineno}: a relative import"
            assert node.module
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif not (at_import and _is_deferred(node)):
            waiting += ast.iter_child_nodes(node)


def _is_deferred(node: ast.AST) -> bool:
    is_typing = isinstance(node, ast.If) and isinstance(node.test, ast.Name) and node.test.id == "TYPE_CHECKING"
    return is_typing or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)


@functools.cache
def needed_packages(path: Path) -> set[str]:
    """Top-level names of the packages that a file and the project's modules behind it cannot be imported without."""
    seen, waiting, packages = {path}, [path], set[str]()
    while waiting:
        for module in _needed(waiting.pop()):
            files = _files(module)
            if not files:
                packages.add(module.partition(".")[0])
            waiting += [file for file in files if file not in seen]
            seen.update(files)
    return packages


@functools.cache
def _needed(path: Path) -> tuple[str, ...]:
    """All that a test imports; of other files, whose functions not every test calls, what is imported with them."""
    return tuple(imports(path, at_import=not path.name.startswith("test_")))


@functools.cache
def _files(module: str) -> tuple[Path, ...]:
    """The files of this project that run when `module` is imported; none for other packages."""
    parts = module.split(".")
    if not (ROOT / parts[0]).is_dir():
        return ()
    folders = [ROOT.joinpath(*parts[:end]) for end in range(1, len(parts) + 1)]
    files = [*(folder / "__init__.py" for folder in folders), folders[-1].with_suffix(".py")]
    return tuple(file for file in files if file.is_file())
