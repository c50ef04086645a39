"""``penstock simulate``: what shedding would do to some traffic."""

from __future__ import annotations

import json
import math
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table

from penstock.control import controller_named
from penstock.duration import is_zero_duration, parse_duration
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
    worst: float | None = typer.Option(None, "--worst", help="micro-batch: the longest wait of a row, in targets; 1 by default."),
    prefer: str | None = typer.Option(None, "--prefer", help="micro-batch: even (default) or fresh."),
    expired: str | None = typer.Option(
        None, "--expired", help="micro-batch: shed (default) or keep rows that can't meet the target any more."
    ),
    floor: float | None = typer.Option(None, "--floor", help="micro-batch: the least share of older rows to keep."),
    first_cost: str | None = typer.Option(None, "--first-cost", help="micro-batch: CPU time per row to start with."),
    max_loss: float = typer.Option(1.0, "--max-loss", help="Never shed more than this share over a minute."),
    bounded: bool = typer.Option(True, "--bounded/--unbounded", help="by-arrival: bound what a batch keeps, as gates do."),
    backlog: str = typer.Option("0s", "--backlog", help="The job starts this long after the first arrivals."),
    cap: int | None = typer.Option(None, "--cap", help="The most rows that the source gives to a batch."),
    cold: str | None = typer.Option(None, "--cold", help="The engine is cold: its first batch takes this much longer."),
    noise: float = typer.Option(0.0, "--noise", help="Relative deviation of a batch's time, such as 0.05."),
    stall: str = typer.Option("0s", "--stall", help="The engine stops for this long, every --stall-every."),
    stall_every: str = typer.Option("15s", "--stall-every", help="Time between two stalls."),
    down_at: str | None = typer.Option(None, "--down-at", help="The job ends at this time, and starts again after --down-for."),
    down_for: str = typer.Option("60s", "--down-for", help="How long it is down."),
    clock: str | None = typer.Option(None, "--clock", help="Arrival times are multiples of this, such as 1s."),
    clock_step: str = typer.Option("0s", "--clock-step", help="All clocks are set forward by this; back, such as -1h."),
    clock_step_at: str = typer.Option("30s", "--clock-step-at", help="When they are."),
    latency: str = typer.Option("0s", "--latency", help="Rows can be read this long after they arrived."),
    ages: bool = typer.Option(True, "--ages/--no-ages", help="Whether rows say when they arrived."),
    seed: int = typer.Option(0, "--seed", help="The same seed gives the same run."),
    plot: Path | None = typer.Option(None, "--plot", help="Draw delay, keep and rate into this file (.png, .svg, .pdf)."),
    as_json: bool = typer.Option(False, "--json", help="Print the numbers as JSON and nothing else."),
) -> None:
    """Simulate what shedding would do to your traffic: any controller on any arrivals."""
    target_s = parse_duration(delay_target, "--delay-target")
    options: dict[str, Any] = {
        "cost_s": None if assume_cost is None else parse_duration(assume_cost, "--assume-cost"),
        "headroom": assume_headroom,
        "worst": worst,
        "prefer": prefer,
        "expired": expired,
        "floor": floor,
        "first_cost_s": None if first_cost is None else parse_duration(first_cost, "--first-cost"),
    }
    law = controller_named(controller, target_s, **{name: value for name, value in options.items() if value is not None})
    stall_every_s, down_s = parse_duration(stall_every, "--stall-every"), _parse_time(down_for, "--down-for")
    conditions: dict[str, Any] = {
        "start_s": _parse_time(backlog, "--backlog"),
        "cap": cap,
        "cold_s": None if cold is None else _parse_time(cold, "--cold"),
        "stall_s": _parse_time(stall, "--stall"),
        "stall_every_s": stall_every_s if not is_zero_duration(stall) else math.inf,
        "down_at_s": math.inf if down_at is None else _parse_time(down_at, "--down-at"),
        "down_s": down_s if down_at is not None else 0.0,
        "latency_s": _parse_time(latency, "--latency"),
        "has_ages": ages,
        "step_s": math.copysign(_parse_time(clock_step.lstrip("-"), "--clock-step"), -1.0 if clock_step.startswith("-") else 1.0),
        "step_at_s": _parse_time(clock_step_at, "--clock-step-at"),
    }
    chosen = engine or (Engine.by_batch if controller == "micro-batch" else Engine.queue)
    if chosen is Engine.queue and controller == "micro-batch":
        raise PenstockError("--engine queue has no micro-batches to control: choose by-batch, by-arrival or another controller")
    if not 0 < headroom <= 1:
        raise PenstockError(f"--headroom must lie in (0, 1], got {headroom}")
    _check_plot(plot)
    arrivals = _load_arrivals(trace, generator, rate, duration, speed=speed, seed=seed)
    if clock is not None:
        tick_s = parse_duration(clock, "--clock")
        arrivals = tick_s * (arrivals // tick_s)
    costs = _parse_costs(cost, cost_after, float(arrivals[-1]))

    from penstock.simulation.micro_batch_engine import Conditions, simulate_micro_batches  # noqa: PLC0415 - commands load what they need
    from penstock.simulation.queue import simulate_queue  # noqa: PLC0415

    if chosen is Engine.queue:
        _refuse_conditions(conditions, noise, max_loss)
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
            bounded=bounded,
            conditions=Conditions(**conditions),
            max_loss=max_loss,
            noise=noise,
            seed=seed,
        )
    if plot is not None:
        _draw(outcome, plot, controller)
    if as_json:
        typer.echo(json.dumps(outcome.to_dict(), indent=2))
    else:
        _show(outcome, controller, chosen, arrivals)


def _parse_time(text: str, option: str) -> float:
    """Return seconds; unlike a duration, they may be none."""
    return 0.0 if is_zero_duration(text) else parse_duration(text, option)


def _refuse_conditions(conditions: dict[str, Any], noise: float, max_loss: float) -> None:
    """The queue engine knows nothing of batches, caps and restarts."""
    ideal: dict[str, tuple[str, Any]] = {
        "cap": ("cap", None),
        "cold_s": ("cold", None),
        "start_s": ("backlog", 0.0),
        "stall_s": ("stall", 0.0),
        "down_at_s": ("down-at", math.inf),
        "latency_s": ("latency", 0.0),
        "has_ages": ("no-ages", True),
        "step_s": ("clock-step", 0.0),
    }
    given = [f"--{option}" for name, (option, value) in ideal.items() if conditions[name] != value]
    given += [option for option, is_given in (("--noise", noise != 0), ("--max-loss", max_loss != 1)) if is_given]
    if given:
        raise PenstockError(f"{given[0]} belongs to the micro-batch engines: choose --engine by-batch or by-arrival")


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
        ("of those expired", f"{outcome.expired:,} ({outcome.expired / max(1, outcome.offered):.1%})"),
        ("kept per second", f"{outcome.kept / length_s:,.0f} rows"),
    ):
        table.add_row(name, value)
    console = Console(highlight=False)
    console.print(table)
    for note in outcome.notes:
        console.print(f"! {note}", style="yellow", soft_wrap=True)


def _draw(outcome: Outcome, path: Path, controller: str) -> None:
    from penstock.simulation.plotting import lines  # noqa: PLC0415 - needs matplotlib

    series = outcome.series
    times = series["t_s"].tolist()
    panels = {
        label: {controller: (times, series[name].tolist())}
        for label, name in (("mean delay, s", "delay_s"), ("keep", "keep"), ("rows/s offered", "rate"))
    }
    lines(panels, path, title=f"{controller}, {outcome.loss:.1%} shed", target=outcome.delay_target_s)
