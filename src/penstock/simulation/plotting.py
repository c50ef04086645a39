"""Plots that several experiments draw."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from penstock.errors import PenstockError

__all__ = ["COLOURS", "bars", "by_panel", "grouped_bars", "lines"]

COLOURS = ("#0f766e", "#c2410c", "#1d4ed8", "#a21caf", "#65a30d", "#64748b", "#111827", "#db2777")


def bars(values: Sequence[tuple[str, float]], path: Path, *, title: str, label: str, log: bool = False) -> None:
    """Draw named values as horizontal bars, the first on top."""
    figure = _figure(8, 1.2 + 0.45 * len(values))
    axes = figure.subplots()
    patches = axes.barh([name for name, _ in values], [value for _, value in values], color="#0f766e")
    axes.bar_label(patches, [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for _, value in values], padding=4)
    axes.invert_yaxis()
    if log:
        axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)


def grouped_bars(
    groups: Sequence[str], values: Mapping[str, Sequence[float | None]], path: Path, *, title: str, label: str
) -> None:
    """Draw several values per group side by side; missing values leave a gap."""
    figure = _figure(9, 4)
    axes = figure.subplots()
    width = 0.8 / len(values)
    for number, (name, heights) in enumerate(values.items()):
        known = [(group, height) for group, height in enumerate(heights) if height is not None]
        centres = [group + (number - (len(values) - 1) / 2) * width for group, _ in known]
        patches = axes.bar(centres, [height for _, height in known], width, label=name, color=COLOURS[number])
        axes.bar_label(patches, [f"{height:.2f}" for _, height in known], padding=2, fontsize=8)
    axes.set_xticks(range(len(groups)), groups)
    axes.set_ylabel(label)
    axes.set_title(title, loc="left", fontweight="bold")
    axes.spines[["top", "right"]].set_visible(False)
    axes.margins(y=0.12)
    axes.legend(frameon=False)
    figure.savefig(path, dpi=150)


def lines(
    panels: Mapping[str, Mapping[str, tuple[Sequence[float], Sequence[float]]]],
    path: Path,
    *,
    title: str,
    x: str = "seconds",
    target: float | None = None,
    log: Sequence[str] = (),
) -> None:
    """Draw lines by name in panels, one above the other; a panel's name labels its y axis.

    ``target`` is drawn in the first panel and in all others that show a delay. Panels named in ``log`` have a logarithmic axis.
    A name has the same colour in all panels.
    """
    figure = _figure(9, 1.0 + 2.8 * len(panels))
    all_axes = np.atleast_1d(figure.subplots(len(panels), 1, sharex=True))
    names = list(dict.fromkeys(name for panel in panels.values() for name in panel))
    for axes, (label, panel) in zip(all_axes, panels.items(), strict=True):
        for name, (xs, ys) in panel.items():
            axes.plot(xs, ys, label=name, linewidth=1.2, color=COLOURS[names.index(name) % len(COLOURS)])
        axes.set_ylabel(label)
        axes.spines[["top", "right"]].set_visible(False)
        if label in log:
            axes.set_yscale("log")
        if label not in log:
            axes.set_ylim(bottom=0)
        if target is not None and (axes is all_axes[0] or "delay" in label):
            axes.axhline(target, color="#111827", linewidth=0.8, linestyle="--", label="target")
    all_axes[0].legend(frameon=False, ncols=min(4, len(names) + 1), fontsize=8)
    all_axes[0].set_title(title, loc="left", fontweight="bold")
    all_axes[-1].set_xlabel(x)
    figure.savefig(path, dpi=150)


def by_panel(series: Mapping[str, tuple[Sequence[float], Sequence[float]]]) -> dict[str, dict[str, Any]]:
    """Sort lines named ``name|panel`` into panels.

    >>> by_panel({"a|delay": ([1], [2]), "b|delay": ([1], [3])})
    {'delay': {'a': ([1], [2]), 'b': ([1], [3])}}
    """
    panels: dict[str, dict[str, Any]] = {}
    for key, line in series.items():
        name, _, panel = key.partition("|")
        panels.setdefault(panel, {})[name] = line
    return panels


def _figure(width: float, height: float) -> Any:
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PenstockError("a plot needs Matplotlib: pip install 'penstock[plots]'") from error
    return Figure(figsize=(width, height), layout="constrained")
