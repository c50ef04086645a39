"""The demo's picture: arrivals, delay, and the share that was kept."""

from __future__ import annotations

import importlib.util
import io
from typing import TYPE_CHECKING, Any

import numpy as np

from penstock.demo.summary import ArmRun, Demo
from penstock.errors import PenstockError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["draw_picture", "need_matplotlib"]

_COLOURS = ("#c2410c", "#0f766e")  # Spark alone, with Penstock
_INK, _MUTED, _GRID = "#1f2937", "#6b7280", "#e5e7eb"
_STYLE: Any = {
    "font.size": 11,
    "axes.edgecolor": _MUTED,
    "axes.labelcolor": _INK,
    "axes.titlesize": 12,
    "axes.titleweight": "bold",
    "axes.titlelocation": "left",
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": _GRID,
    "text.color": _INK,
    "xtick.color": _MUTED,
    "ytick.color": _MUTED,
    "legend.frameon": False,
}
_DELAY_TICKS_S = (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000)


def need_matplotlib() -> None:
    """Raise an error if Matplotlib is missing: at the start of the demo, and not when the picture is due."""
    if importlib.util.find_spec("matplotlib") is None:
        raise PenstockError("the report needs Matplotlib: pip install 'penstock[plots]'")


def draw_picture(demo: Demo) -> bytes:
    """Return a PNG with three panels on one time axis: arrival rate and capacity, delay and target, keep."""
    import matplotlib as mpl  # noqa: PLC0415 - an extra
    from matplotlib.figure import Figure  # noqa: PLC0415

    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(10, 8.4), layout="constrained")
        rate, delay, keep = figure.subplots(3, 1, sharex=True, height_ratios=(2, 3, 2))
        _draw_rate(rate, demo)
        _draw_delay(delay, demo)
        _draw_keep(keep, demo)
        keep.set_xlim(0, demo.settings.seconds)
        keep.set_xlabel("seconds since the trace began")
        png = io.BytesIO()
        figure.savefig(png, format="png", dpi=160)
    return png.getvalue()


def _draw_rate(axes: Axes, demo: Demo) -> None:
    seconds = demo.settings.seconds
    width_s = seconds / max(10, round(seconds / 0.5))
    edges = np.arange(0.0, seconds + width_s / 2, width_s)
    rates = np.histogram(demo.arrivals_s, edges)[0] / width_s
    axes.stairs(rates, edges, fill=True, color="#94a3b8", alpha=0.6, label="arrivals")
    axes.axhline(
        demo.capacity_rows_per_s, color=_INK, linewidth=1.5, label=f"measured capacity, {demo.capacity_rows_per_s:,.0f} rows/s"
    )
    axes.set_title(f"Input: {demo.settings.overload:g} times the capacity on average, in bursts")
    axes.set_ylabel("rows/s")
    axes.yaxis.set_major_formatter(lambda value, _: f"{value:,.0f}")
    axes.set_ylim(0, 1.3 * max(rates.max(), demo.capacity_rows_per_s))
    axes.legend(loc="upper left", ncols=2)


def _draw_delay(axes: Axes, demo: Demo) -> None:
    values_s = [demo.settings.target_s]
    for run, summary, colour in zip(demo.runs, demo.summaries, _COLOURS, strict=True):
        batches = [batch for batch in run.batches if batch.kept]
        ends, delays = [batch.end_s for batch in batches], [batch.delay_s for batch in batches]
        axes.plot(
            ends, delays, "o-", color=colour, markersize=4, linewidth=1.8, label=f"{run.label}, mean {summary.mean_delay_s:.1f} s"
        )
        oldest_s = _oldest_age_s(run, demo)
        if ends and oldest_s > 2.0 * demo.settings.target_s:
            axes.plot([ends[-1], run.seconds], [delays[-1], oldest_s], ":", color=colour, linewidth=1.8)
            axes.annotate(
                "age of the oldest row still queued",
                (run.seconds, oldest_s),
                (-8, -34),  # below the line: the legend is above
                textcoords="offset points",
                ha="right",
                va="top",
                color=colour,
            )
            values_s.append(oldest_s)
        values_s += delays
    axes.axhline(demo.settings.target_s, color=_INK, linestyle="--", linewidth=1.5, label=f"target, {demo.settings.target_s:g} s")
    axes.set_yscale("log")
    low, high = max(min(values_s) / 1.6, 0.05), max(values_s) * 2.6
    axes.set_ylim(low, high)
    ticks = [tick for tick in _DELAY_TICKS_S if low <= tick <= high]
    axes.set_yticks(ticks, [f"{tick:g}" for tick in ticks])
    axes.minorticks_off()
    axes.set_title("Delay of each batch: its end minus the mean arrival time of its rows")
    axes.set_ylabel("seconds (log)")
    axes.legend(loc="upper left", ncols=3)


def _oldest_age_s(run: ArmRun, demo: Demo) -> float:
    """Return the age of the oldest row that was still queued at the end."""
    queued = demo.arrivals_s[run.offered :]
    return float(run.seconds - queued[0]) if queued.size else 0.0


def _draw_keep(axes: Axes, demo: Demo) -> None:
    for run, colour in zip(demo.runs, _COLOURS, strict=True):
        steps: list[Any] = [(batch.start_s, batch.keep) for batch in run.batches if batch.offered]
        if not steps:
            continue
        times, keeps = [*(time for time, _ in steps), run.seconds], [*(keep for _, keep in steps), steps[-1][1]]
        axes.step(times, keeps, where="post", color=colour, linewidth=1.8, label=run.label)
    axes.set_ylim(0, 1.3)
    axes.set_yticks([0, 0.25, 0.5, 0.75, 1], ["0", "25%", "50%", "75%", "100%"])
    axes.set_title("Keep: the share of rows that the gate lets through")
    axes.set_ylabel("kept")
    axes.legend(loc="upper left", ncols=2)
