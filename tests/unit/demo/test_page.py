"""The demo's page."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from penstock.demo.page import render_page
from penstock.observe.embedding import embed_one
from tests.journals import write_journal
from tests.unit.demo.runs import demo


def read_data(text: str) -> dict[str, Any]:
    (embedded,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', text, re.DOTALL)
    return dict(json.loads(embedded))


def test_the_page_needs_nothing_else() -> None:
    text = render_page(demo())
    assert not re.findall(r'(?:src|href)="(?!data:,|#)', text)
    assert "Spark <alone>" not in text
    HTMLParser().feed(text)
    story = read_data(text)["story"]
    assert "Spark <alone>" in story["tables"][0]["columns"]
    assert {chart["title"] for chart in story["charts"]} == {"Delay", "Arrivals and capacity", "Keep"}
    for chart in story["charts"]:
        assert all(len(series["t"]) == len(series["y"]) > 0 for series in chart["series"])


def test_both_arms_can_be_looked_into(tmp_path: Path) -> None:
    result = demo()
    for index, run in enumerate(result.runs):
        write_journal(tmp_path / str(index), 20)
        result.runs[index] = replace(run, query=embed_one(str(tmp_path / str(index)), run.label, run.label))  # type: ignore[index]
    data = read_data(render_page(result))
    assert [query["name"] for query in data["overview"]["queries"]] == [run.label for run in result.runs]
    assert all(len(data["curves"][run.label]["t"]) == 20 for run in result.runs)
