"""What the package promises about itself."""

from __future__ import annotations

import ast
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

import penstock

PACKAGE = Path(penstock.__file__).parent
PYPROJECT = tomllib.loads((PACKAGE.parents[1] / "pyproject.toml").read_text(encoding="utf-8"))
KNOW_SPARK = {"spark", "cluster", "demo"}
LAYERS = sorted(
    path.stem for path in PACKAGE.iterdir() if (path.suffix == ".py" or (path / "__init__.py").exists()) and path.stem[0] != "_"
)
PURE = [layer for layer in LAYERS if layer not in KNOW_SPARK]
CONTRACTS = {contract["name"]: contract for contract in PYPROJECT["tool"]["importlinter"]["contracts"]}


def list_modules(layer: str) -> list[str]:
    """Return the modules of a layer, a package or a single file, as they are imported."""
    files = sorted((PACKAGE / layer).rglob("*.py")) or [PACKAGE / f"{layer}.py"]
    names = (path.relative_to(PACKAGE).with_suffix("").parts for path in files)
    return [".".join(("penstock", *parts)).removesuffix(".__init__") for parts in names]


def find_importers(modules: list[str], *, of: str) -> list[str]:
    """Import modules in a new process, and return those after which a package has been loaded."""
    code = (
        "import sys, importlib\n"
        f"for name in {modules!r}:\n"
        "    importlib.import_module(name)\n"
        f"    if {of!r} in sys.modules: print(name); break"
    )
    run = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    return run.stdout.split()


@pytest.mark.parametrize("layer", PURE)
def test_loads_without_pyspark(layer: str) -> None:
    assert find_importers(list_modules(layer), of="pyspark") == []


def test_what_loads_pyspark_is_reported() -> None:
    pytest.importorskip("pyspark")
    assert find_importers(["penstock.errors", "penstock.spark.functions"], of="pyspark") == ["penstock.spark.functions"]


def test_what_spark_moves_between_its_versions_is_named_in_one_place() -> None:
    """The packages below this one have moved with every second release."""
    named = [path for path in PACKAGE.rglob("*.py") if "execution.streaming" in path.read_text(encoding="utf-8")]
    assert named
    assert [str(path) for path in named if path.parent != PACKAGE / "spark" / "versions"] == []


def test_the_linter_knows_every_layer() -> None:
    """The command line loads Spark only when a command needs it, which the linter cannot tell."""
    forbidden = CONTRACTS["Only spark, cluster and the demo know pyspark"]
    assert sorted(forbidden["source_modules"]) == [f"penstock.{layer}" for layer in PURE if layer != "cli"]
    assert forbidden["forbidden_modules"] == ["pyspark"]
    ordered = [name for names in CONTRACTS["Dependencies point down"]["layers"] for name in names.split(" | ")]
    assert sorted(ordered) == sorted(["benchmarks", *(f"penstock.{layer}" for layer in LAYERS)])


def test_without_pyspark_the_error_says_what_to_install() -> None:
    code = "import sys; sys.modules['pyspark'] = None; import penstock; penstock.Shedder"
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert "pip install 'penstock[spark]'" in run.stderr


def test_a_client_without_a_jvm_loads_what_spark_connect_needs() -> None:
    """Spark's pure Python client has neither py4j nor pyspark.core."""
    pytest.importorskip("grpc", reason="Spark Connect needs grpcio")
    code = (
        "import sys; sys.modules['py4j'] = sys.modules['pyspark.core'] = None\n"
        "import penstock, pyspark\n"
        "print(hasattr(pyspark, 'SparkContext'), *(getattr(penstock, name) is not None for name in penstock.__all__))"
    )
    run = subprocess.run([sys.executable, "-c", code], check=False, capture_output=True, text=True)
    assert run.stdout.split() == ["False", *["True"] * len(penstock.__all__)], run.stderr


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
