"""What the package promises about itself."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import penstock

PACKAGE = Path(penstock.__file__).parent
PURE = [
    "control",
    "drop",
    "network",
    "planning",
    "simulation",
    "duration",
    "errors",
    "cli",
    "journal",
    "journal.report",
    "las",
    "estimate",
    "coordination",
    "filesystem",
]


@pytest.mark.parametrize("layer", PURE)
def test_loads_without_pyspark(layer: str) -> None:
    code = f"import sys, penstock.{layer}; sys.exit('pyspark' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_every_module_of_the_pure_layers_loads_without_pyspark() -> None:
    modules = [
        ".".join(("penstock", *path.relative_to(PACKAGE).with_suffix("").parts)).removesuffix(".__init__")
        for layer in ("control", "drop", "network", "planning", "simulation")
        for path in (PACKAGE / layer).rglob("*.py")
    ]
    code = f"import sys, importlib; [importlib.import_module(m) for m in {modules!r}]; sys.exit('pyspark' in sys.modules)"
    assert len(modules) > 8
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_without_pyspark_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import penstock; penstock.Shedder"
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "pip install 'penstock[spark]'" in run.stderr


@pytest.mark.parametrize("path", sorted(PACKAGE.rglob("*.py")), ids=lambda p: str(p.relative_to(PACKAGE)))
def test_public_names_are_sorted(path: Path) -> None:
    for node in ast.parse(path.read_text()).body:
        if isinstance(node, ast.Assign) and getattr(node.targets[0], "id", "") == "__all__":
            names = ast.literal_eval(node.value)
            assert names == sorted(names)
            return


def test_public_names_exist() -> None:
    for name in penstock.__all__:
        assert getattr(penstock, name) is not None
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = penstock.nothing
