"""``penstock simulate``: what shedding would do to some traffic."""

from __future__ import annotations

import json
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from penstock.control import Controller, controller_named
from penstock.duration import parse_duration
from penstock.errors import PenstockError

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from penstock.simulation.outcome import Outcome
    from penstock.simulation.profile import Profile

__all__ = ["simulate"]


class Engine(StrEnum):
    """What runs the job: one queue with one server, or micro-batches whose decisions take effect by batch or by arrival."""

    queue = "queue"
    by_batch = "by-batch"
    by_arrival = "by-arrival"


# long because typer makes an option of each parameter
def simulate(  # noqa: PLR0917 - typer makes options of them, which is also why this is longer than a screen
    controller: str = typer.Option(
        "micro-batch",
        "--controller",
        help="micro-batch (ours), seamless (SEaMLeSS, Pham et al.), ctrl (CTRL, Tu and Prabhakar), aurora or keep-all.",
    ),
    trace: Path | None = typer.Option(
        None, "--trace", help="Arrivals: a .csv, .csv.gz or .parquet file with a column t in seconds."
    ),
    generator: str = typer.Option("on-off", "--generator", help="The arrival process, if there is no trace."),
    rate: float = typer.Option(400.0, "--rate", help="Mean rate of the arrival process, in rows per second."),
    duration: str = typer.Option("120s", "--duration", help="Duration of the arrival process."),
    speed: float = typer.Option(1.0, "--speed", help="Play the arrivals this many times faster."),
    cost: str = typer.Option(..., "--cost", help="CPU time per row, such as 4ms or 0.004."),
    cost_after: str | None = typer.Option(None, "--cost-after", help="CPU time per row in the second half of the run."),
    delay_target: str = typer.Option("2s", "--delay-target", help="The delay to hold."),
    engine: Engine | None = typer.Option(
        None,
        "--engine",
        help="One queue with one server, or micro-batches. Default: by-batch for the controller micro-batch, otherwise queue.",
    ),
    period: str = typer.Option("0.5s", "--period", help="Control period of the queue engine."),
    overhead: str = typer.Option("0.2s", "--overhead", help="Time that a micro-batch takes without rows."),
    headroom: float = typer.Option(1.0, "--headroom", help="Share of the CPU that the job really gets."),
    assume_cost: str | None = typer.Option(
        None, "--assume-cost", help="Give the controller this cost; otherwise it learns the cost."
    ),
    assume_headroom: float | None = typer.Option(None, "--assume-headroom", help="Give the controller this headroom."),
    seed: int = typer.Option(0, "--seed", help="The same seed gives the same run."),
    plot: Path | None = typer.Option(None, "--plot", help="Draw delay, keep and rate into this file (.png, .svg, .pdf)."),
    as_json: bool = typer.Option(False, "--json", help="Print the numbers as JSON and nothing else."),
) -> None:
    """Simulate what shedding would do to your traffic: any controller on any arrivals."""
    target_s = parse_duration(delay_target, "--delay-target")
    law = _make_controller(controller, target_s, assume_cost, assume_headroom)
    chosen = engine or (Engine.by_batch if controller == "micro-batch" else Engine.queue)
    if chosen is Engine.queue and controller == "micro-batch":
        raise PenstockError("--engine queue has no micro-batches to control: choose by-batch, by-arrival or another controller")
    if not 0 < headroom <= 1:
        raise PenstockError(f"--headroom must lie in (0, 1], got {headroom}")
    _check_plot(plot)
    arrivals = _load_arrivals(trace, generator, rate, duration, speed=speed, seed=seed)
    costs = _parse_costs(cost, cost_after, float(arrivals[-1]))

    from penstock.simulation.micro_batch_engine import simulate_micro_batches  # noqa: PLC0415 - commands load what they need
    from penstock.simulation.queue import simulate_queue  # noqa: PLC0415

    if chosen is Engine.queue:
        period_s = parse_duration(period, "--period")
        outcome = simulate_queue(arrivals, law, cost_s=costs, period_s=period_s, headroom=headroom, seed=seed)
    else:
        outcome = simulate_micro_batches(
            arrivals,
            law,
            cost_s=costs,
            overhead_s=parse_duration(overhead, "--overhead"),
            headroom=headroom,
            how="by batch" if chosen is Engine.by_batch else "by arrival",
            seed=seed,
        )
    if plot is not None:
        _draw(outcome, plot, controller)
    if as_json:
        typer.echo(json.dumps(outcome.to_dict(), indent=2))
    else:
        _show(outcome, controller, chosen, arrivals)


def _make_controller(name: str, target_s: float, assume_cost: str | None, assume_headroom: float | None) -> Controller:
    options: dict[str, Any] = {}
    if assume_cost is not None:
        options["cost_s"] = parse_duration(assume_cost, "--assume-cost")
    if assume_headroom is not None:
        options["headroom"] = assume_headroom
    return controller_named(name, target_s, **options)


def _check_plot(path: Path | None) -> None:
    if path is None:
        return
    if path.suffix.lower() not in (".png", ".svg", ".pdf"):
        raise PenstockError(f"--plot {path}: the name must end in .png, .svg or .pdf")
    if not path.parent.is_dir():
        raise PenstockError(f"--plot {path}: there is no directory {path.parent}")


def _load_arrivals(
    trace: Path | None, generator: str, rate: float, duration: str, *, speed: float, seed: int
) -> NDArray[np.float64]:
    from penstock.simulation.trace import load_trace  # noqa: PLC0415
    from penstock.simulation.traffic import option_names, traffic_from_options  # noqa: PLC0415

    if not speed > 0:
        raise PenstockError(f"--speed must be positive, got {speed}")
    if trace is not None:
        times = load_trace(trace).t
        times_from_zero: NDArray[np.float64] = (times - times[0]) / speed
        return times_from_zero
    options = {"generator": generator, "rate": str(rate), "duration": duration}
    if "seed" in option_names(generator):
        options["seed"] = str(seed)
    times = traffic_from_options(options).arrivals() / speed
    if not times.size:
        raise PenstockError(f"--generator {generator} produces no rows at --rate {rate:g} in --duration {duration}")
    return times


def _parse_costs(cost: str, cost_after: str | None, length_s: float) -> Profile:
    from penstock.simulation.profile import Profile  # noqa: PLC0415

    cost_s = parse_duration(cost, "--cost")
    if cost_after is None:
        return Profile.of(cost_s)
    return Profile.step(cost_s, parse_duration(cost_after, "--cost-after"), length_s / 2.0)


def _show(outcome: Outcome, controller: str, engine: Engine, arrivals: NDArray[np.float64]) -> None:
    length_s = max(float(arrivals[-1]), 1e-9)
    table = Table(
        "",
        controller,
        title=f"{outcome.offered:,} rows in {length_s:,.0f} s, target {outcome.delay_target_s:g} s, {engine} engine",
        title_justify="left",
        min_width=60,
    )
    table.columns[1].justify = "right"
    for name, value in (
        ("mean delay", f"{outcome.mean_delay_s:.2f} s"),
        ("p99 delay", f"{outcome.p99_delay_s:.2f} s"),
        ("mean violation", f"{outcome.mean_violation_s:.3f} s"),
        ("worst violation", f"{outcome.max_violation_s:.2f} s"),
        ("kept", f"{outcome.kept:,} ({1 - outcome.loss:.1%})"),
        ("shed", f"{outcome.offered - outcome.kept:,} ({outcome.loss:.1%})"),
        ("kept per second", f"{outcome.kept / length_s:,.0f} rows"),
    ):
        table.add_row(name, value)
    Console(highlight=False).print(table)


def _draw(outcome: Outcome, path: Path, controller: str) -> None:
    from penstock.simulation.plotting import lines  # noqa: PLC0415 - needs matplotlib

    series = outcome.series
    times = series["t_s"].tolist()
    panels = {
        label: {controller: (times, series[name].tolist())}
        for label, name in (("mean delay, s", "delay_s"), ("keep", "keep"), ("rows/s offered", "rate"))
    }
    lines(panels, path, title=f"{controller}, {outcome.loss:.1%} shed", target=outcome.delay_target_s)
