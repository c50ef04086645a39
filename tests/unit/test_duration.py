"""Parsing durations."""

from __future__ import annotations

import math
from datetime import timedelta
from typing import Any

import pytest

from penstock.duration import is_zero_duration, parse_duration
from penstock.errors import PenstockError


@pytest.mark.parametrize(
    ("value", "seconds"),
    [
        ("2s", 2.0),
        ("500ms", 0.5),
        ("1.5 s", 1.5),
        ("2 seconds", 2.0),
        ("1 minute", 60.0),
        ("1min", 60.0),
        ("1h", 3600.0),
        ("250us", 250e-6),
        ("500 milliseconds", 0.5),
        ("20 Secs", 20.0),
        ("1 day", 86400.0),
        ("2 weeks", 14 * 86400.0),
        ("3", 3.0),
        (2, 2.0),
        (0.25, 0.25),
        (timedelta(milliseconds=20), 0.02),
    ],
)
def test_parses(value: Any, seconds: float) -> None:
    assert parse_duration(value, "delay_target") == pytest.approx(seconds)


@pytest.mark.parametrize("value", ["", "soon", "2 fortnights", "s", "-2s", "1e3s", None, True, [2], object()])
def test_rejects_what_is_not_a_duration(value: Any) -> None:
    with pytest.raises(PenstockError, match="delay_target must be a duration such as") as caught:
        parse_duration(value, "delay_target")
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("value", [0, -1, 0.0, "0s", "0ms", math.nan, math.inf, timedelta(0), timedelta(seconds=-1)])
def test_rejects_what_is_not_positive(value: Any) -> None:
    with pytest.raises(PenstockError, match="delay_target must be positive"):
        parse_duration(value, "delay_target")


@pytest.mark.parametrize("text", ["0", "0s", "0 seconds", "0.0 ms"])
def test_zero_durations(text: str) -> None:
    assert is_zero_duration(text)


@pytest.mark.parametrize("text", ["1s", "0.5s", "", "zero", "0 fortnights", "-0s"])
def test_texts_that_are_not_zero_durations(text: str) -> None:
    assert not is_zero_duration(text)
