"""What the Markdown pages promise: links that resolve, lines that wrap, imports that exist."""

from __future__ import annotations

import ast
import importlib
import importlib.util
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PAGES = sorted(
    path
    for path in ROOT.rglob("*.md")
    if not any(part.startswith(".") or part == "node_modules" for part in path.relative_to(ROOT).parts)
)
MAX_COLUMNS = 120

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda path: str(path.relative_to(ROOT)))


def split_code(text: str) -> tuple[list[str], list[tuple[str, str]]]:
    """Return the lines outside of fenced code, and each fenced block as (language, code)."""
    lines: list[str] = []
    blocks: list[tuple[str, str]] = []
    block: list[str] | None = None
    language = ""
    for line in text.splitlines():
        if line.lstrip().startswith("```"):
            if block is None:
                block, language = [], line.strip().removeprefix("```")
            else:
                blocks.append((language, "\n".join(block)))
                block = None
        elif block is None:
            lines.append(line)
        else:
            block.append(line)
    assert block is None, "a fenced block is not closed"
    return lines, blocks


def find_links(text: str) -> Iterator[str]:
    """Yield the relative targets of links and images outside of code."""
    prose = re.sub(r"`[^`]*`", "", "\n".join(split_code(text)[0]))
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        if not re.match(r"[a-z]+:", target):
            yield target


def list_anchors(text: str) -> set[str]:
    """Return the anchors of the headings, as GitHub makes them."""
    headings = (line.lstrip("#").strip() for line in split_code(text)[0] if re.match(r"#+ ", line))
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def find_broken_links(page: Path) -> list[str]:
    """Return the relative links of a page whose file or heading does not exist."""
    broken = []
    for link in find_links(page.read_text(encoding="utf-8")):
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        has_anchor = not anchor or (target.suffix == ".md" and target.is_file() and anchor in list_anchors(target.read_text()))
        if not target.exists() or not has_anchor:
            broken.append(link)
    return broken


def find_long_lines(text: str) -> list[str]:
    """Return the lines of prose beyond the limit; tables and code may be wider."""
    return [line for line in split_code(text)[0] if len(line) > MAX_COLUMNS and not line.startswith(("|", "    "))]


def find_missing_imports(code: str) -> list[str]:
    """Return what an example imports from Penstock that does not exist."""
    missing = []
    for node in ast.walk(ast.parse(code)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "penstock":
            missing += [f"{node.module}.{alias.name}" for alias in node.names if not can_import(node.module or "", alias.name)]
    return missing


def can_import(module: str, name: str) -> bool:
    """Whether ``from module import name`` works, be the name an attribute or a submodule."""
    if hasattr(importlib.import_module(module), name):
        return True
    return importlib.util.find_spec(f"{module}.{name}") is not None


def test_there_are_pages() -> None:
    assert {"README.md", "CONTRIBUTING.md", "CHANGELOG.md", "concepts.md", "costs.md"} <= {page.name for page in PAGES}


@every_page
def test_relative_links_resolve(page: Path) -> None:
    assert find_broken_links(page) == []


@every_page
def test_prose_wraps(page: Path) -> None:
    assert find_long_lines(page.read_text(encoding="utf-8")) == []


@every_page
def test_examples_import_what_exists(page: Path) -> None:
    blocks = split_code(page.read_text(encoding="utf-8"))[1]
    assert [name for language, code in blocks if language == "python" for name in find_missing_imports(code)] == []


def test_a_broken_link_is_reported(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A heading: `code`, and more\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Top\n[a](there.md) [b](there.md#a-heading-code-and-more) [c](#top) [d](https://example.org/x) `[e](no.md)`\n"
        "![f](no.png) [g](no.md)\n[h](there.md#no) [i](#no)\n```\n[j](no.md)\n```\n"
    )
    assert find_broken_links(page) == ["no.png", "no.md", "there.md#no", "#no"]


def test_a_long_line_is_reported() -> None:
    wide = "x" * (MAX_COLUMNS + 1)
    assert find_long_lines(f"{wide}\n{wide[1:]}\n| {wide}\n```\n{wide}\n```\n") == [wide]


def test_a_missing_import_is_reported() -> None:
    code = (
        "from penstock import Shedder, errors, nothing\nfrom penstock.errors import PenstockError\nfrom elsewhere import anything"
    )
    assert find_missing_imports(code) == ["penstock.nothing"]
