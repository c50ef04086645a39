"""Rooms that fit: no module, class or function grows beyond what a reader can hold, or the reason stands beside it."""

from __future__ import annotations

import ast
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

import penstock

PACKAGE = Path(penstock.__file__).parent
MODULES = sorted(PACKAGE.rglob("*.py"))
MAX_MODULE_LINES = 400
MAX_METHODS = 15
MAX_FUNCTION_LINES = 60
REASON = "# long because "

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def find_same_names(package: Path) -> dict[str, list[str]]:
    """Return the modules that share a name; the command line has a file per command, named like what the command is about."""
    by_name: dict[str, list[str]] = defaultdict(list)
    for path in sorted(package.rglob("*.py")):
        relative = path.relative_to(package)
        if not path.stem.startswith("__") and relative.parts[0] != "cli":
            by_name[path.stem].append(str(relative))
    return {name: paths for name, paths in by_name.items() if len(paths) > 1}


def has_reason(lines: list[str], node: Definition) -> bool:
    """Whether the line above a definition, and above its decorators, says why it is long."""
    first = min(node.lineno, *(decorator.lineno for decorator in node.decorator_list)) if node.decorator_list else node.lineno
    return first >= 2 and lines[first - 2].strip().startswith(REASON)


def find_oversized(text: str) -> Iterator[str]:
    """Yield what is too large in a module and does not say why."""
    lines, tree = text.splitlines(), ast.parse(text)
    head = lines[: next((node.end_lineno or 0 for node in tree.body), 0) + 3]
    if len(lines) > MAX_MODULE_LINES and not any(line.startswith(REASON) for line in head):
        yield f"the module has {len(lines)} lines"
    for node in ast.walk(tree):
        if not isinstance(node, Definition) or has_reason(lines, node):
            continue
        if isinstance(node, ast.ClassDef):
            methods = [item.name for item in node.body if isinstance(item, ast.FunctionDef | ast.AsyncFunctionDef)]
            count = len({name for name in methods if not (name.startswith("__") and name.endswith("__"))})
            if count > MAX_METHODS:
                yield f"class {node.name} has {count} methods"
        elif (length := count_lines(node)) > MAX_FUNCTION_LINES:
            yield f"function {node.name} has {length} lines"


def count_lines(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the lines of a function without its docstring, which may be as long as its parameters need."""
    first = node.body[0]
    is_docstring = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant) and isinstance(first.value.value, str)
    docstring = (first.end_lineno or first.lineno) - first.lineno + 1 if is_docstring else 0
    return (node.end_lineno or node.lineno) - node.lineno + 1 - docstring


def test_no_two_modules_share_a_name() -> None:
    assert find_same_names(PACKAGE) == {}


@pytest.mark.parametrize("path", MODULES, ids=lambda path: str(path.relative_to(PACKAGE)))
def test_nothing_is_too_large(path: Path) -> None:
    assert list(find_oversized(path.read_text(encoding="utf-8"))) == []


# -- the checks themselves -----------------------------------------------------------------------------------------------


def test_modules_of_one_name_are_reported(tmp_path: Path) -> None:
    for name in ("a/x.py", "b/x.py", "a/__init__.py", "b/__init__.py", "cli/x.py", "cli/y.py", "b/y.py", "z.py"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    assert find_same_names(tmp_path) == {"x": ["a/x.py", "b/x.py"]}


def long_function(lines: int) -> str:
    return "def f():\n" + "    pass\n" * (lines - 1)


def wide_class(methods: int, above: str = "") -> str:
    body = "".join(f"    def m{number}(self): ...\n" for number in range(methods))
    return f"{above}class C:\n    def __init__(self): ...\n{body}"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("x = 1\n" * MAX_MODULE_LINES, []),
        ("x = 1\n" * (MAX_MODULE_LINES + 1), [f"the module has {MAX_MODULE_LINES + 1} lines"]),
        ('"""A page."""\n\n# long because of its tables\n' + "x = 1\n" * MAX_MODULE_LINES, []),
        (long_function(MAX_FUNCTION_LINES), []),
        (long_function(MAX_FUNCTION_LINES + 1), [f"function f has {MAX_FUNCTION_LINES + 1} lines"]),
        (long_function(MAX_FUNCTION_LINES).replace("():\n", '():\n    """What it does.\n\n    At length.\n    """\n'), []),
        (f"{REASON}it is a table\n@cache\n" + long_function(MAX_FUNCTION_LINES + 1), []),
        (
            f"{REASON}it is a table\n\n" + long_function(MAX_FUNCTION_LINES + 1),
            [f"function f has {MAX_FUNCTION_LINES + 1} lines"],
        ),
        (wide_class(MAX_METHODS), []),
        (wide_class(MAX_METHODS + 1), [f"class C has {MAX_METHODS + 1} methods"]),
        (wide_class(MAX_METHODS + 1, f"{REASON}Spark wants them\n"), []),
    ],
)
def test_what_is_too_large_is_reported(text: str, expected: list[str]) -> None:
    assert list(find_oversized(text)) == expected
