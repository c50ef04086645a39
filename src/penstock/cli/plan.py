"""``penstock plan``: how much to drop where, for a network and its rates."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.errors import PenstockError

if TYPE_CHECKING:
    from penstock.network import Network
    from penstock.planning import Plan, Planner
    from penstock.planning.workload import Workload

__all__ = ["plan"]

_DRAWN_AT_MOST = 60


def plan(  # noqa: PLR0917 - typer makes options of them
    network: Path = typer.Argument(..., help="The network, as YAML."),
    rates: str = typer.Option(..., "--rates", help="Tuples a second of each input: i1=100,i2=50."),
    method: str = typer.Option("exact", "--method", help="exact, greedy, solver, solver-w, fit or early-fit."),
    epsilon: float = typer.Option(0.05, "--epsilon", help="Allowed error: relative; for early-fit, in weighted tuples a second."),
    max_entries: int | None = typer.Option(
        None, "--max-entries", help="Bound the tables of fit and early-fit; epsilon no longer holds."
    ),
    max_programs: int | None = typer.Option(
        None, "--max-programs", help="Stop solver and solver-w after so many linear programs."
    ),
    means: str | None = typer.Option(None, "--means", help="solver-w: mean rates of an exponential workload, i1=5,i2=5."),
    workload: Path | None = typer.Option(
        None, "--workload", help="solver-w: recorded rates, a .csv with a column for each input."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the plan as JSON and nothing else."),
) -> None:
    """Say how much to drop where when a network of queries gets more than it can do."""
    from penstock.network import load_network  # noqa: PLC0415 - commands load what they need

    found = load_network(network)
    wanted = parse_rates(rates, "--rates")
    options = {"max_entries": max_entries, "max_programs": max_programs}
    planner = _planner(found, method, epsilon, options, means=means, workload=workload, rates=wanted)
    result = planner.plan(wanted)
    if as_json:
        typer.echo(json.dumps(result.to_dict(), indent=2))
    else:
        _show(found, result, planner)


def parse_rates(text: str, option: str) -> dict[str, float]:
    """Read ``i1=100,i2=50``.

    >>> parse_rates("i1=100, i2=5e1", "--rates")
    {'i1': 100.0, 'i2': 50.0}
    """
    found: dict[str, float] = {}
    for item in text.split(","):
        name, equals, value = item.partition("=")
        try:
            rate = float(value)
        except ValueError:
            rate = float("nan")
            equals = ""
        if not equals or not name.strip():
            raise PenstockError(f"{option}: {item.strip()!r} is not a rate; write them as i1=100,i2=50")
        if name.strip() in found:
            raise PenstockError(f"{option}: {name.strip()!r} comes twice")
        found[name.strip()] = rate
    return found


def _planner(
    network: Network,
    method: str,
    epsilon: float,
    options: dict[str, int | None],
    *,
    means: str | None,
    workload: Path | None,
    rates: dict[str, float],
) -> Planner:
    from penstock.planning import planner_named  # noqa: PLC0415
    from penstock.planning.plan import check_rates  # noqa: PLC0415

    check_rates(network, rates)  # before long work
    chosen: dict[str, Any] = {}
    if method in ("solver", "solver-w", "fit"):
        chosen["epsilon"] = epsilon
    used = {"solver": "max_programs", "solver-w": "max_programs", "fit": "max_entries", "early-fit": "max_entries"}.get(method)
    for name, value in options.items():
        if value is not None and name != used:
            raise PenstockError(f"--{name.replace('_', '-')} means nothing for --method {method}")
        if value is not None and name == used:
            chosen["size" if method == "early-fit" else name] = value
    if method == "early-fit" and "size" not in chosen:
        chosen["error"] = epsilon
    if method == "solver-w":
        chosen["workload"] = _workload(network, means, workload, rates)
    elif means is not None or workload is not None:
        raise PenstockError(f"--means and --workload are for --method solver-w, not {method}")
    return planner_named(method, network, **chosen)


def _workload(network: Network, means: str | None, path: Path | None, rates: dict[str, float]) -> Workload:
    from penstock.planning.plan import check_rates  # noqa: PLC0415
    from penstock.planning.workload import Empirical, Exponential  # noqa: PLC0415

    limits = [stream.max_rate for stream in network.inputs.values()]
    if path is not None:
        if means is not None:
            raise PenstockError("--means and --workload exclude each other")
        return Empirical(_recorded(path, tuple(network.inputs)), limits)
    known = parse_rates(means, "--means") if means is not None else rates
    found, _ = check_rates(network, known)
    if not (found > 0).all():
        raise PenstockError("solver-w needs mean rates above 0, such as --means i1=5,i2=5, or --workload")
    return Exponential(found.tolist(), limits)


def _recorded(path: Path, names: tuple[str, ...]) -> Any:
    import numpy as np  # noqa: PLC0415
    from pyarrow import ArrowInvalid, types  # noqa: PLC0415
    from pyarrow import csv as arrow_csv  # noqa: PLC0415

    try:
        table = arrow_csv.read_csv(path)
    except (OSError, ArrowInvalid) as error:
        raise PenstockError(f"--workload {path}: {str(error).splitlines()[0]}") from error
    twice = [name for name in names if table.column_names.count(name) > 1]
    if twice:
        raise PenstockError(f"--workload {path}: column {twice[0]!r} comes twice")
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise PenstockError(f"--workload {path}: no column for input {missing[0]!r}; it has {', '.join(table.column_names)}")
    for name in names:
        kind = table.schema.field(name).type
        if not (types.is_integer(kind) or types.is_floating(kind)):
            raise PenstockError(f"--workload {path}: the rates of {name!r} must be numbers, they are {kind}")
    return np.column_stack([table[name].to_numpy().astype(np.float64) for name in names])


def _show(network: Network, found: Plan, planner: Planner) -> None:
    from penstock.cli.drawing import drawn  # noqa: PLC0415

    console = Console(highlight=False)
    dropping = any(keep < 1.0 - 1e-9 for keep in found.keep.values())
    calm = "not overloaded" if dropping else "not overloaded: nothing is dropped"
    state = "overloaded without a plan" if found.overloaded else calm
    console.print(Text(f"{found.method}: score {found.score:.6g}, {state}", style="bold"))
    for note in found.notes:
        console.print(f"note: {note}", markup=False)
    if len(network.operators) <= _DRAWN_AT_MOST:
        console.print(drawn(network, found))
    dropped = {name: keep for name, keep in found.keep.items() if keep < 1.0 - 1e-9}
    if dropped:
        table = Table("drop location", "keep", "drop", title="plan", title_justify="left")
        for name, keep in dropped.items():
            table.add_row(Text(name), f"{keep:.4f}", f"{1 - keep:.1%}")
        console.print(table)
    loads = Table("node", "load", "capacity", "", title="nodes", title_justify="left")
    fullest = sorted(found.loads, key=lambda name: -found.loads[name] / found.capacities[name])
    for name in fullest[:_DRAWN_AT_MOST]:
        used = found.loads[name] / found.capacities[name]
        mark = Text("=" * round(20 * min(1.0, used)) + f" {used:.0%}")
        if name == found.bottleneck and found.overloaded:
            mark.append("  bottleneck", style="bold red")
        loads.add_row(Text(name), f"{found.loads[name]:.4g}", f"{found.capacities[name]:.4g}", mark)
    console.print(loads)
    through = Table("output", "tuples/s", "weight", title="outputs", title_justify="left")
    for name, rate in list(found.throughput.items())[:_DRAWN_AT_MOST]:
        through.add_row(Text(name), f"{rate:.4g}", f"{network.outputs[name].weight:g}")
    console.print(through)
    for what, value in (("regions", "regions"), ("linear programs", "programs"), ("table entries", "entries")):
        if hasattr(planner, value):
            console.print(Text(f"{what}: {getattr(planner, value):,}", style="dim"))
