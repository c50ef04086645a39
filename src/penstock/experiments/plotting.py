"""Pictures that more than one experiment draws."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.errors import PenstockError

__all__ = ["bars"]


def bars(values: Sequence[tuple[str, float]], path: Path, *, title: str, label: str, log: bool = False) -> None:
    """Draw named values as horizontal bars, the first on top."""
    try:
        from matplotlib.figure import Figure  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise PenstockError("a plot needs Matplotlib: pip install 'penstock[plots]'") from error
    figure = Figure(figsize=(8, 1.2 + 0.45 * len(values)), layout="constrained")
    axes = figure.subplots()
    drawn = axes.barh([name for name, _ in values], [value for _, value in values], color="#0f766e")
    axes.bar_label(drawn, [f"{value:,.3g}" if value < 1000 else f"{value:,.0f}" for _, value in values], padding=4)
    axes.invert_yaxis()
    if log:
        axes.set_xscale("log")
    axes.margins(x=0.12)
    axes.set_title(title, loc="left", fontweight="bold")
    axes.set_xlabel(label)
    axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=150)
