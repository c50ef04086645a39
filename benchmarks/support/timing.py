"""Timing that tolerates a busy machine: arms take turns, and the best of several rounds counts."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Callable, Iterator, Mapping
from typing import TypeVar

__all__ = ["best_of", "pin_to_one_core", "time_call"]

_T = TypeVar("_T")


def best_of(
    arms: Mapping[str, Callable[[], object]], rounds: int, warm_up: int = 2, clock: Callable[[], float] = time.perf_counter
) -> dict[str, float]:
    """Return the shortest time of each arm. All arms run once per round; the warm-up rounds do not count.

    >>> ticks = iter([0, 9, 10, 19, 20, 23, 30, 31])      # start and end: a and b warm up, then one round
    >>> best_of({"a": lambda: None, "b": lambda: None}, rounds=1, warm_up=1, clock=lambda: next(ticks))
    {'a': 3, 'b': 1}
    """
    best = dict.fromkeys(arms, float("inf"))
    for round_number in range(warm_up + rounds):
        for name, arm in arms.items():
            start_s = clock()
            arm()
            elapsed_s = clock() - start_s
            if round_number >= warm_up:
                best[name] = min(best[name], elapsed_s)
    return best


@contextlib.contextmanager
def pin_to_one_core() -> Iterator[bool]:
    """Pin this process and those that it starts to one core. Gives ``False`` where the system cannot do that."""
    if not hasattr(os, "sched_setaffinity"):
        yield False
        return
    before = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {max(before)})
    try:
        yield True
    finally:
        os.sched_setaffinity(0, before)


def time_call(function: Callable[[], _T], clock: Callable[[], float] = time.perf_counter) -> tuple[_T, float]:
    """Call a function and return its result and the seconds that it took.

    >>> time_call(lambda: 42, clock=iter([1.0, 3.0]).__next__)
    (42, 2.0)
    """
    start_s = clock()
    result = function()
    return result, clock() - start_s
