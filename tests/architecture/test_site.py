"""The documentation site: every page has its place, and nothing public is missing."""

from __future__ import annotations

import importlib.util
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

import penstock
import penstock.feedback
from benchmarks import list_benchmarks
from penstock.metrics.instruments import COUNTERS, GAUGES, HISTOGRAMS

pytest.importorskip("mkdocs", reason="mkdocs is not installed: pip install 'penstock[docs]'")

DOCS = Path(penstock.__file__).parents[2] / "docs"


def load_hooks() -> Any:
    specification = importlib.util.spec_from_file_location("site_hooks", DOCS / "site_hooks.py")
    assert specification is not None
    assert specification.loader is not None
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    return module


HOOKS = load_hooks()


def list_nav(item: Any) -> list[str]:
    if isinstance(item, str):
        return [item]
    return [page for part in (item.values() if isinstance(item, dict) else item) for page in list_nav(part)]


def test_every_page_is_in_the_navigation() -> None:
    class Loader(yaml.SafeLoader):
        """Knows nothing of mkdocs' own tags, and needs none."""

    Loader.add_multi_constructor("tag:yaml.org,2002:python/", lambda *_: None)
    nav = list_nav(yaml.load((DOCS.parent / "mkdocs.yml").read_text(), Loader)["nav"])  # noqa: S506 - a safe loader
    pages = set(HOOKS.map_pages().values()) | {"commands.md", "refusals.md"}
    assert sorted(nav) == sorted(pages)


def test_the_reference_has_every_public_name() -> None:
    named = {line.rpartition(".")[2] for line in re.findall(r"^::: (\S+)", (DOCS / "api.md").read_text(), re.MULTILINE)}
    assert {*penstock.__all__, *penstock.feedback.__all__} <= named


def test_researchers_find_every_experiment() -> None:
    listed = set(re.findall(r"^\| `([a-z0-9-]+)` \|", (DOCS / "experiments.md").read_text(), re.MULTILINE))
    assert listed == set(list_benchmarks())


def test_every_metric_is_explained() -> None:
    listed = set(re.findall(r"^\| `(penstock_\w+)` \|", (DOCS / "metrics.md").read_text(), re.MULTILINE))
    counters = {f"{instrument.prometheus_name}_total" for instrument in COUNTERS.values()}
    others = {instrument.prometheus_name for group in (GAUGES, HISTOGRAMS) for instrument in group.values()}
    assert listed == counters | others


def test_links_lead_to_pages_of_the_site() -> None:
    text = (
        "[a](../benchmarks/results/costs.md#gate) [b](../src/penstock/errors.py) ![c](images/demo.png) [d](#x) [e](https://x.org)\n"
        "```\n[f](../README.md)\n```\n[g](../benchmarks/results/README.md) [h](kafka.md) [i](no.md)"
    )
    assert HOOKS.rewrite_links(text, "docs/concepts.md", "concepts.md") == (
        "[a](results/costs.md#gate) b ![c](images/demo.png) [d](#x) [e](https://x.org)\n"
        "```\n[f](../README.md)\n```\n[g](results/index.md) [h](kafka.md) [i](no.md)"
    )
    named = "[metrics.md](metrics.md#alerts), [docs/kafka.md](kafka.md) and [`costs.md`](../benchmarks/results/costs.md)"
    assert HOOKS.rewrite_links(named, "docs/concepts.md", "concepts.md") == (
        "[Metrics and alerts](metrics.md#alerts), [Kafka](kafka.md) and [What it costs](results/costs.md)"
    )
    back = "[a](../../docs/papers.md) ![b](images/answers.png) [c](costs.md)"
    assert HOOKS.rewrite_links(back, "benchmarks/results/answers.md", "results/answers.md") == (
        "[a](../papers.md) ![b](images/answers.png) [c](costs.md)"
    )


def test_what_is_loaded_from_elsewhere_is_found() -> None:
    assert HOOKS.find_foreign('<a class="x" href="https://example.org"></a><link rel="stylesheet" href="a.css">') == []
    assert HOOKS.find_foreign('<link rel="stylesheet" href="https://example.org/a.css">') == ["https://example.org/a.css"]
    assert HOOKS.find_foreign('<script src="//example.org/a.js"></script>') == ["//example.org/a.js"]


def test_pages_made_from_the_code() -> None:
    commands = HOOKS.describe_commands()
    assert "## penstock watch" in commands
    assert "| `--port` |" in commands
    refusals = HOOKS.find_refusals()
    assert "`max_loss must lie in [0, 1], got ...`" in refusals["Continuing a job"]
    assert sum(map(len, refusals.values())) > 300
