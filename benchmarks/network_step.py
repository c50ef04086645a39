"""How soon a step in the input rates shows in the gates, with a coordinator and with D-FIT.

Input i1 goes from 40 to 250 tuples per second, which overloads B and then A. Counts the micro-batches of the query that
reads it, from the first that holds rows of the new rate until its gate's keep is within a quarter of the value at which
it settles.
"""

from __future__ import annotations

import statistics
from pathlib import Path

from benchmarks.support.network_runs import NetworkRun, run_network
from benchmarks.support.protocol import Say
from benchmarks.support.results import Bar, Result, Row
from penstock.simulation.plotting import lines

__all__ = ["plot", "run"]

_LOW, _HIGH, _STEP_S = 40.0, 250.0, 44.0
_PACE_S = 2.0


def run(*, quick: bool, say: Say) -> Result:
    """Run each manager once."""
    rows: list[Row] = []
    bars: list[Bar] = []
    curves: dict[str, tuple[list[float], list[float]]] = {}
    for manager in ("exact",) if quick else ("exact", "d-fit"):
        network_run = run_network(_traffic(), manager, say=say, warm_s=1.0, measure_s=_STEP_S + 30.0, pace_s=_PACE_S)
        keeps, row = _follow_gate(network_run)
        rows.append({"manager": manager, **row})
        curves[manager] = ([float(x) for x in range(len(keeps))], keeps)
        bars.append(
            Bar.at_most(
                f"micro-batches from the step to the new plan, {manager}",
                99.0 if row["batches until settled"] is None else row["batches until settled"],
                2.0,
            )
        )
    return Result("network-step", rows, bars, lines=curves)


def _traffic() -> dict[str, dict[str, str | float]]:
    step: dict[str, str | float] = {
        "generator": "step",
        "rate": _LOW,
        "to_rate": _HIGH,
        "at": f"{_STEP_S:g}s",
        "duration": "300s",
    }
    return {
        "i1": {**step, "seed": 1},
        "i2": {"generator": "constant", "rate": 60.0, "duration": "300s", "seed": 2},
    }


def _follow_gate(run: NetworkRun) -> tuple[list[float], dict[str, float | None]]:
    """Follow the gate of i1 from the first batch with more rows."""
    state = run.journals["a1"]
    batches = [number for number in sorted(state.batches) if "i1" in state.batches[number].gates]
    offered = {number: state.batches[number].gates["i1"][0] for number in batches}
    decided = {d.batch_id: d.gates["i1"][0] for d in state.decisions if d.batch_id is not None and "i1" in d.gates}
    # The first batches hold the rows that arrived while Spark started; the step is where the rows increase for good.
    usual = statistics.median(offered[number] for number in batches[3:12])
    first = next((number for number in batches[8:] if offered[number] > 1.5 * usual), None)
    if first is None:
        return [], {"batches until settled": None, "settled at": None, "pace, s": None}
    after = [number for number in batches if number >= first]
    settled = statistics.median(decided[number] for number in after[4:])
    is_settled = [abs(decided[number] - settled) <= 0.25 * settled for number in after]
    reached = next((index for index in range(len(is_settled)) if all(is_settled[index : index + 2])), len(is_settled))
    ends = [state.batches[number].end_s or 0.0 for number in after]
    pace = (ends[-1] - ends[0]) / max(1, len(ends) - 1)
    return [decided[number] for number in batches], {
        "batches until settled": float(reached),
        "settled at": settled,
        "pace, s": pace,
    }


def plot(result: Result, path: Path) -> None:
    """Draw the keep at the gate, batch by batch."""
    lines({"keep at the gate of i1": dict(result.lines)}, path, title="A step in the input rate", x="micro-batch")
