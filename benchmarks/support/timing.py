"""Timing that survives a busy machine: arms in turn, and the best or the median of several rounds."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

__all__ = ["best_of", "one_core", "timed"]

_T = TypeVar("_T")


def best_of(
    arms: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 2, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the least time of each arm over rounds in which all arms run in turn, after some rounds that don't count.

    >>> ticks = iter([0, 9, 10, 19, 20, 23, 30, 31])      # begin and end: warm-up of a and b, then a round
    >>> best_of({"a": lambda: None, "b": lambda: None}, rounds=1, warm_up=1, clock=lambda: next(ticks))
    {'a': 3, 'b': 1}
    """
    best = dict.fromkeys(arms, float("inf"))
    for round_number in range(warm_up + rounds):
        for name, arm in arms.items():
            begun_s = clock()
            arm()
            passed_s = clock() - begun_s
            if round_number >= warm_up:
                best[name] = min(best[name], passed_s)
    return best


@contextlib.contextmanager
def one_core() -> Iterator[bool]:
    """Hold this process and those that it starts to one core; false where that can't be done."""
    if not hasattr(os, "sched_setaffinity"):
        yield False
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield True
    finally:
        os.sched_setaffinity(0, before)


def timed(make: Callable[[], _T], clock: Callable[[], float] = time.perf_counter) -> tuple[_T, float]:
    """Return what a function makes and how long it took.

    >>> timed(lambda: 42, clock=iter([1.0, 3.0]).__next__)
    (42, 2.0)
    """
    begun_s = clock()
    made = make()
    return made, clock() - begun_s
