"""The rates of two streams, second by second: from a real trace where it is at hand, otherwise from on-off sources as bursty."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from penstock.simulation.trace import load_trace
from penstock.simulation.traffic import on_off

__all__ = ["find_trace", "trace_name", "trace_rates"]

_TRACE = "bc_paug89_full.csv.gz"


def find_trace() -> Path | None:
    """Return the file of BC-pAug89 if ``PENSTOCK_DATA`` names a directory that has it."""
    path = Path(os.environ.get("PENSTOCK_DATA", "")) / _TRACE
    return path if "PENSTOCK_DATA" in os.environ and path.is_file() else None


def trace_name() -> str:
    """Return what the rates are taken from."""
    return "on-off sources" if find_trace() is None else "BC-pAug89"


def trace_rates(mean: float, seconds: float, *, bin_s: float = 1.0) -> NDArray[np.float64]:
    """Return the tuples per second of two streams in each of ``seconds / bin_s`` bins, each with about this mean.

    The first and the second half of the trace are the two streams, and their rates are scaled to the mean.
    """
    path = find_trace()
    if path is None:
        times = [on_off(mean, seconds, seed=seed) for seed in (1, 2)]
    else:
        arrivals = load_trace(path).t
        half_s = float(arrivals[-1]) / 2.0
        times = [arrivals[arrivals < half_s], arrivals[arrivals >= half_s] - half_s]
        seconds = min(seconds, half_s)
    bins = int(seconds / bin_s)
    counts = [np.bincount((series[series < bins * bin_s] / bin_s).astype(np.int64), minlength=bins)[:bins] for series in times]
    rates: NDArray[np.float64] = np.column_stack(counts) / bin_s
    return rates if path is None else rates * (mean / rates.mean(axis=0))
