"""The demo's picture."""

from __future__ import annotations

import importlib.util

import pytest

from tests.unit.demo.runs import demo


@pytest.mark.skipif(importlib.util.find_spec("matplotlib") is None, reason="needs Matplotlib")
def test_the_picture_can_be_drawn() -> None:
    from penstock.demo.plots import draw_picture

    assert draw_picture(demo()).startswith(b"\x89PNG")
