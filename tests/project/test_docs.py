"""What the documents say of the code is true of the code."""

import ast
import re
from pathlib import Path

import pytest

from tests.project.settings_page import page

ROOT = Path(__file__).resolve().parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
DOCUMENTS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / "docs").rglob("*.md"))]


def test_the_page_of_settings_is_made_of_the_settings() -> None:
    found = (ROOT / "docs" / "settings.md").read_text(encoding="utf-8")
    assert found == page(), "make it again: python -m tests.project.settings_page > docs/settings.md"


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_links_lead_somewhere(document: Path) -> None:
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", document.read_text(encoding="utf-8"))
    local = [target for target in targets if not target.startswith(("http://", "https://"))]
    assert [target for target in local if not (document.parent / target).exists()] == []


def test_every_make_target_in_the_readme_exists() -> None:
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    targets = set(re.findall(r"^([a-z-]+):", makefile, flags=re.MULTILINE))
    named = set(re.findall(r"(?:^|`)make ([a-z-]+)", README, flags=re.MULTILINE))
    assert {"serve", "test", "dev"} <= named <= targets


def test_every_test_that_holds_an_invariant_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    named = re.findall(r"`(tests/[\w/]+\.py)::(\w+)`", text)
    assert len(named) >= 6
    for path, function in named:
        tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
        names = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)}
        assert function in names, f"docs/architecture.md names {path}::{function}, which does not exist"


def test_every_folder_of_the_code_map_exists() -> None:
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    folders = re.findall(r"^\| `([\w/]+/)` \|", text, flags=re.MULTILINE)
    assert len(folders) >= 8
    assert [folder for folder in folders if not (ROOT / folder).is_dir()] == []


def test_decisions_are_numbered_once_and_say_why() -> None:
    records = sorted((ROOT / "docs" / "decisions").glob("*.md"))
    assert [record.name for record in records if not re.fullmatch(r"\d{4}-[a-z0-9-]+\.md", record.name)] == []
    numbers = [record.name[:4] for record in records]
    assert sorted(set(numbers)) == numbers
    for record in records:
        text = record.read_text(encoding="utf-8")
        assert text.startswith(f"# {record.name[:4]}: "), f"{record.name} does not open with its number"
        assert re.search(r"^(## |\*\*)?Context\b", text, re.MULTILINE), f"{record.name} gives no context"
        assert re.search(r"^(## |\*\*)?Decision\b", text, re.MULTILINE), f"{record.name} gives no decision"
