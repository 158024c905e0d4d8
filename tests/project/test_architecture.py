"""The invariants of docs/architecture.md that can be read off the source."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from service.heads.registry import HEADS
from tests.imports import ROOT, imports

PACKAGES = ("model", "export", "service", "bench")
NEVER_SERVED = ("torch", "transformers", "onnx", "onnxscript", "onnx_ir")
FLOORS = (
    ("service.__main__",),
    ("service.server",),
    ("service.app",),
    ("service.operations",),
    ("service.heads.registry",),
    ("service.heads.attend",),
    ("service.heads",),
    ("service.http",),
    ("service.models",),
    ("service.runtime",),
    ("service.engine",),
    ("service.settings", "service.logs", "service.version", "service.workers"),
    ("service.errors",),
)
"""From the top; a module belongs to the longest name that it begins with, and imports from its own floor or below."""
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60


def sources(folder: str) -> list[Path]:
    files = sorted((ROOT / folder).rglob("*.py"))
    assert files, f"{folder}/ has no Python files"
    return files


def is_in(module: str, packages: tuple[str, ...]) -> bool:
    return any(module == package or module.startswith(f"{package}.") for package in packages)


@pytest.mark.parametrize(
    ("folder", "forbidden"),
    [
        pytest.param("model", ("export", "service", "bench", "tests"), id="model-stands-alone"),
        pytest.param("export", ("service", "bench", "tests"), id="export-knows-model-only"),
        pytest.param("service", (*NEVER_SERVED, "bench", "tests"), id="service-is-torch-free"),
        pytest.param(
            "service/engine",
            ("fastapi", "starlette", "uvicorn", "pydantic", "onnxruntime"),
            id="engine-knows-neither-http-nor-onnx-runtime",
        ),
        pytest.param(
            "service/runtime",
            ("asyncio", "anyio", "fastapi", "starlette", "uvicorn"),
            id="runtime-knows-neither-asyncio-nor-http",
        ),
        pytest.param("service/models", ("fastapi", "starlette", "uvicorn"), id="models-know-no-http"),
    ],
)
def test_dependencies_point_one_way(folder: str, forbidden: tuple[str, ...]) -> None:
    found = [
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources(folder)
        for module in imports(path)
        if is_in(module, forbidden)
    ]
    assert found == []


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def floor_of(module: str) -> int | None:
    """The number of the floor, from the top; None for what is no module of the service, or the whole of it."""
    found = [(len(name), number) for number, names in enumerate(FLOORS) for name in names if is_in(module, (name,))]
    return max(found)[1] if found else None


def test_imports_run_down_the_floors() -> None:
    assert [str(path) for path in sources("service") if floor_of(module_of(path)) is None] == [
        str(ROOT / "service" / "__init__.py")
    ]
    found = [
        f"{module_of(path)} imports {module}"
        for path in sources("service")
        for module in imports(path)
        if (above := floor_of(module)) is not None and above < (floor_of(module_of(path)) or 0)
    ]
    assert found == []


def test_heads_do_not_know_each_other() -> None:
    """But `attend`, which explains the others."""
    heads = [folder.name for folder in (ROOT / "service" / "heads").iterdir() if (folder / "head.py").is_file()]
    assert {head.name for head in HEADS} == set(heads)
    found = [
        f"{path.relative_to(ROOT)} imports {module}"
        for head in heads
        if head != "attend"
        for path in sources(f"service/heads/{head}")
        for module in imports(path)
        if is_in(module, tuple(f"service.heads.{other}" for other in heads if other != head))
    ]
    assert found == []


def named_words(tree: ast.AST) -> Iterator[str]:
    """The words of every name and every string that is no docstring; `embedAll` and `embed_all` have two."""
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        texts = [value for name in ("id", "attr", "name", "arg") if isinstance(value := getattr(node, name, None), str)]
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            texts.append(node.value)
        for text in texts:
            yield from (word.lower() for word in re.findall(r"[A-Z]?[a-z]+|[A-Z]+", text))


@pytest.mark.parametrize("folder", ["service/http", "service/models"])
def test_what_serves_every_task_names_none(folder: str) -> None:
    tasks = ("translate", "translation", "translator", "embed", "embedding", "embeddings", "embedder", "generate")
    found = [
        f"{path.relative_to(ROOT)} says {word}"
        for path in sources(folder)
        for word in named_words(ast.parse(path.read_text(encoding="utf-8")))
        if word in (*tasks, "attend", "attention", "attender")
    ]
    assert found == []


def test_service_takes_only_the_contract_from_the_other_packages() -> None:
    allowed = (
        "export.bundle",
        "export.heads",
        "export.manifest",
        "export.processor",
        "model.alignment",
        "model.config",
        "model.piece_tokenizer",
        "model.tokenizer",
        "model.translation_format",
    )
    found = {
        f"{path.relative_to(ROOT)} imports {module}"
        for path in sources("service")
        for module in imports(path)
        if is_in(module, ("export", "model")) and module not in ("export", "model") and not is_in(module, allowed)
    }
    assert found == set()


def calls(tree: ast.AST) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name | ast.Attribute):
            yield (node.func.id if isinstance(node.func, ast.Name) else node.func.attr), node


def is_error_status(node: ast.expr) -> bool:
    return isinstance(node, ast.Constant) and isinstance(node.value, int) and node.value >= 400


def test_one_file_maps_errors_to_statuses() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno} {name}"
        for path in sources("service")
        if path.name != "error_handlers.py"
        for name, call in calls(ast.parse(path.read_text(encoding="utf-8")))
        if name == "HTTPException"
        or any(keyword.arg == "status_code" and is_error_status(keyword.value) for keyword in call.keywords)
    ]
    assert found == []


def test_no_settings_are_made_at_import() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{call.lineno} {name}"
        for path in sources("service")
        for statement in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(statement, ast.Assign | ast.AnnAssign | ast.Expr)
        for name, call in calls(statement)
        if name in ("Settings", "load_settings")
    ]
    assert found == []


def test_files_and_functions_stay_small() -> None:
    found = []
    for path in (path for package in PACKAGES for path in sources(package)):
        text = path.read_text(encoding="utf-8")
        if (count := len(text.splitlines())) > MAX_FILE_LINES:
            found.append(f"{path.relative_to(ROOT)}: {count} lines")
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > MAX_FUNCTION_LINES:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno} {node.name}: {length} lines")
    assert found == []
