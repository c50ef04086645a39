"""The demo's report: the dashboard's page as one file, with both arms and what came out."""

from __future__ import annotations

from typing import Any

import numpy as np

from penstock.dashboard.html_page import render_report_page
from penstock.demo.summary import Demo

__all__ = ["render_page"]

_COLOURS = ("--c2", "--c1")  # Spark alone, with Penstock


def render_page(demo: Demo) -> str:
    """Return the report as HTML."""
    queries = [run.query for run in demo.runs if run.query is not None]
    overview = {"queries": [query["outline"] for query in queries], "networks": [], "now_s": 0.0}
    data = {
        "overview": overview,
        "details": {query["outline"]["id"]: query["detail"] for query in queries},
        "curves": {query["outline"]["id"]: query["curves"] for query in queries},
        "story": _tell(demo),
    }
    return render_report_page(data, "Penstock demo")


def _tell(demo: Demo) -> dict[str, Any]:
    settings = demo.settings
    alone, shed = demo.summaries
    ledger = [
        [s.label, f"{s.batches:,}", *(f"{rows:,}" for rows in (s.kept + s.shed, s.kept, s.shed, s.queued, s.arrived))]
        for s in demo.summaries
    ]
    return {
        "name": "Demo",
        "title": "A Spark job under a burst, without and with shedding",
        "text": [
            f"The same job on the same {settings.seconds:g} seconds of bursty traffic, at {settings.overload:g} times what it "
            "can process on this machine. Spark alone falls further behind for as long as the overload lasts. Penstock drops "
            "part of the input and holds the delay."
        ],
        "cards": [
            [f"{alone.mean_delay_s:.1f} s", f"mean delay, {alone.label}", _COLOURS[0]],
            [f"{shed.mean_delay_s:.1f} s", f"mean delay, {shed.label}", _COLOURS[1]],
            [f"{settings.target_s:g} s", "delay target", ""],
            [f"{shed.kept / max(1, shed.arrived):.0%}", "of the rows kept, by a hash of the row", _COLOURS[1]],
        ],
        "charts": [_chart_delay(demo), _chart_arrivals(demo), _chart_keep(demo)],
        "tables": [
            {"title": "Result", "columns": ["", *(s.label for s in demo.summaries)], "rows": [[n, *v] for n, v in demo.table]},
            {
                "title": "Ledger",
                "columns": ["", "batches", "offered", "kept", "shed", "queued at the end", "arrived"],
                "rows": ledger,
                "note": "In every batch and in total, offered = kept + shed. Arrived = offered + queued at the end.",
            },
        ],
        "details": _describe_method(demo),
    }


def _chart_delay(demo: Demo) -> dict[str, Any]:
    series: list[dict[str, Any]] = []
    for run, colour in zip(demo.runs, _COLOURS, strict=True):
        batches = [batch for batch in run.batches if batch.kept]
        delays = _round([batch.delay_s for batch in batches])
        series.append({"label": run.label, "colour": colour, "t": _round([batch.end_s for batch in batches]), "y": delays})
        queued = demo.arrivals_s[run.offered :]
        oldest_s = float(run.seconds - queued[0]) if queued.size else 0.0
        if batches and oldest_s > 2.0 * demo.settings.target_s:
            moments, ages = _round([batches[-1].end_s, run.seconds]), _round([batches[-1].delay_s, oldest_s])
            series.append({"label": "oldest row still queued", "colour": colour, "t": moments, "y": ages, "dash": True})
    ends = [0.0, demo.settings.seconds]
    series.append({"label": "target", "colour": "--target", "t": ends, "y": [demo.settings.target_s] * 2, "dash": True})
    hint = "of each batch: its end minus the mean arrival time of its rows"
    is_log = all(value > 0.0 for one in series for value in one["y"])
    return {"title": "Delay", "hint": hint, "unit": "seconds", "height": 280, "series": series, "log": is_log}


def _chart_arrivals(demo: Demo) -> dict[str, Any]:
    seconds = demo.settings.seconds
    width_s = seconds / max(10, round(seconds / 0.5))
    edges = np.arange(0.0, seconds + width_s / 2, width_s)
    rates = np.histogram(demo.arrivals_s, edges)[0] / width_s
    arrivals = {
        "label": "arrivals",
        "colour": "--arrivals",
        "t": _round(edges),
        "y": _round([*rates, rates[-1]]),
        "step": True,
        "fill": True,
    }
    capacity = {
        "label": "capacity",
        "colour": "--capacity",
        "t": [0.0, seconds],
        "y": _round([demo.capacity_rows_per_s] * 2),
        "dash": True,
    }
    hint = f"{demo.settings.overload:g} times the capacity on average"
    return {"title": "Arrivals and capacity", "hint": hint, "unit": "rows", "series": [arrivals, capacity]}


def _chart_keep(demo: Demo) -> dict[str, Any]:
    series = []
    for run, colour in zip(demo.runs, _COLOURS, strict=True):
        steps = [(batch.start_s, batch.keep) for batch in run.batches if batch.offered]
        if steps:
            moments, keeps = [*(moment for moment, _ in steps), run.seconds], [*(keep for _, keep in steps), steps[-1][1]]
            series.append({"label": run.label, "colour": colour, "t": _round(moments), "y": _round(keeps), "step": True})
    return {"title": "Keep", "hint": "the share of rows that the gate lets through", "unit": "share", "series": series}


def _describe_method(demo: Demo) -> list[str]:
    settings = demo.settings
    source = "a Kafka topic" if settings.source == "kafka" else "a replay source"
    return [
        f"The job: {source}, a gate, a Python function that takes {demo.row_cost_s * 1e3:.2f} ms of one core per row (rounds of "
        "SHA-256), a count by key and 5-second window, a sink in the driver. Spark runs in local mode with two cores.",
        f"Capacity: {demo.capacity_rows_per_s:,.0f} rows/s, measured at the start with the same job and input that never runs "
        f"out, as the best of several batches of about {settings.target_s:g} s. A batch with almost no rows takes "
        f"{demo.overhead_s * 1e3:,.0f} ms. Every batch pays this overhead: short batches keep the delay low but leave less of "
        "each second for rows.",
        "Both arms run with a Penstock shedder, so that they are measured in the same way. In the first arm the controller keeps "
        "every row, so Spark behaves as it would alone; the second arm has the default controller.",
        "The delay of a batch is its end minus the mean arrival time of the rows that it kept. Means and percentiles are "
        "weighted by rows. The violation is the delay above the target.",
        "Rows that were still queued when the time was up count with their age at that moment. Their true delay is longer.",
    ]


def _round(values: Any) -> list[float]:
    return [round(float(value), 4) for value in values]
