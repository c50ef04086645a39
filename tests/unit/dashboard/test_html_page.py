"""The page as one file."""

from __future__ import annotations

import json
import re

from penstock.dashboard import render_live_page, render_report_page


def test_data_can_not_leave_its_element() -> None:
    data = {"overview": {"queries": [{"name": "</script><script>alert(1)</script><!--"}]}}
    page = render_report_page(data, "a <title> & more")
    assert "alert(1)</script>" not in page
    (embedded,) = re.findall(r'<script id="data" type="application/json">(.*?)</script>', page, re.DOTALL)
    assert json.loads(embedded) == data
    assert "<title>a &lt;title> &amp; more</title>" in page


def test_it_is_one_file_that_asks_for_nothing() -> None:
    page = render_report_page({})
    assert not re.findall(r'<(?:script|link|img)[^>]*(?:src|href)="(?!data:,)', page)
    assert "default-src 'none'; script-src 'sha256-" in page


def test_the_live_page_has_no_script_of_its_own() -> None:
    assert re.findall(r"<script(?! src=)", render_live_page()) == []
    assert "<style" not in render_live_page()
