"""The demo's page."""

from __future__ import annotations

from html.parser import HTMLParser

from penstock.demo.page import render_page
from tests.unit.demo.runs import demo


def test_the_page_needs_nothing_else() -> None:
    text = render_page(demo(), b"png")
    assert "http" not in text
    assert "data:image/png;base64," in text
    assert "Spark &lt;alone&gt;" in text
    HTMLParser().feed(text)
