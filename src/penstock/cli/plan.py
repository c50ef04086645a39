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
    import numpy as np
    from numpy.typing import NDArray

    from penstock.network import Network
    from penstock.planning import Plan, Planner
    from penstock.planning.workload import Workload

__all__ = ["plan"]

_MOST_SHOWN = 60
_EPSILON = 0.05
_SIZE_OPTIONS = {"solver": "max_programs", "solver-w": "max_programs", "fit": "max_entries", "early-fit": "max_entries"}
"""The option that bounds the work of a method."""


def plan(  # noqa: PLR0917 - typer makes options of them
    network: Path = typer.Argument(..., help="The network, as YAML."),
    rates: str = typer.Option(..., "--rates", help="The tuples per second of each input: i1=100,i2=50."),
    method: str = typer.Option(
        "exact",
        "--method",
        help="exact (a linear program), greedy, solver, solver-w or fit (Staying FIT, Tatbul et al.), d-fit (the same among "
        "nodes and clusters that plan for themselves), or early-fit (its forerunner, Tatbul and Zdonik).",
    ),
    epsilon: float | None = typer.Option(
        None,
        "--epsilon",
        help="The error allowed: relative; for early-fit, in weighted tuples per second. [default: 0.05, or for fit with "
        "--max-entries as little as they allow]",
    ),
    max_entries: int | None = typer.Option(
        None,
        "--max-entries",
        help="The most entries that tables of fit and early-fit may have; the output says what error that is.",
    ),
    max_programs: int | None = typer.Option(
        None, "--max-programs", help="Stop solver and solver-w after this many linear programs."
    ),
    means: str | None = typer.Option(None, "--means", help="solver-w: mean rates of an exponential workload, i1=5,i2=5."),
    workload: Path | None = typer.Option(
        None, "--workload", help="solver-w: recorded rates, a .csv file with one column per input."
    ),
    as_json: bool = typer.Option(False, "--json", help="Print the plan as JSON and nothing else."),
) -> None:
    """Show how much to drop where when a network of queries receives more than it can process."""
    from penstock.network import load_network  # noqa: PLC0415 - commands load what they need
    from penstock.network.garbage import pause_collector  # noqa: PLC0415

    loaded = load_network(network)
    parsed_rates = parse_rates(rates, "--rates")
    sizes = {"max_entries": max_entries, "max_programs": max_programs}
    with pause_collector():
        planner = _make_planner(loaded, method, epsilon, sizes, means=means, workload=workload, rates=parsed_rates)
        result = planner.plan(parsed_rates)
    if as_json:
        error = {"error": planner.error} if hasattr(planner, "error") else {}
        typer.echo(json.dumps({**result.to_dict(), **error}, indent=2))
    else:
        _show(loaded, result, planner)


def parse_rates(text: str, option: str) -> dict[str, float]:
    """Read ``i1=100,i2=50``.

    >>> parse_rates("i1=100, i2=5e1", "--rates")
    {'i1': 100.0, 'i2': 50.0}
    """
    rates: dict[str, float] = {}
    for item in text.split(","):
        name, equals, value = (part.strip() for part in item.partition("="))
        try:
            rate = float(value)
            is_rate = bool(equals and name)
        except ValueError:
            is_rate = False
        if not is_rate:
            raise PenstockError(f"{option}: {item.strip()!r} is not a rate; write rates as i1=100,i2=50")
        if name in rates:
            raise PenstockError(f"{option}: {name!r} comes twice")
        rates[name] = rate
    return rates


def _make_planner(
    network: Network,
    method: str,
    epsilon: float | None,
    sizes: dict[str, int | None],
    *,
    means: str | None,
    workload: Path | None,
    rates: dict[str, float],
) -> Planner:
    from penstock.planning import planner_named  # noqa: PLC0415
    from penstock.planning.plan import check_rates  # noqa: PLC0415

    check_rates(network, rates)  # before long work
    options: dict[str, Any] = {}
    if method == "d-fit":
        options["epsilon"] = _EPSILON if epsilon is None else epsilon
    elif method in ("solver", "solver-w", "fit"):
        options["epsilon"] = _EPSILON if epsilon is None and sizes["max_entries"] is None else epsilon
    for name, size in sizes.items():
        if size is None:
            continue
        if name != _SIZE_OPTIONS.get(method):
            raise PenstockError(f"--{name.replace('_', '-')} does not apply to --method {method}")
        options["size" if method == "early-fit" else name] = size
    if method == "early-fit" and "size" not in options:
        options["error"] = epsilon if epsilon is not None else _EPSILON
    if method == "solver-w":
        options["workload"] = _make_workload(network, means, workload, rates)
    elif means is not None or workload is not None:
        raise PenstockError(f"--means and --workload are for --method solver-w, not {method}")
    if method == "d-fit":
        from penstock.coordination import DFitPlanner  # noqa: PLC0415

        return DFitPlanner(network, **options)
    return planner_named(method, network, **options)


def _make_workload(network: Network, means: str | None, path: Path | None, rates: dict[str, float]) -> Workload:
    from penstock.planning.plan import check_rates  # noqa: PLC0415
    from penstock.planning.workload import Empirical, Exponential  # noqa: PLC0415

    max_rates = [stream.max_rate for stream in network.inputs.values()]
    if path is not None:
        if means is not None:
            raise PenstockError("--means and --workload exclude each other")
        return Empirical(_read_workload(path, tuple(network.inputs)), max_rates)
    mean_rates, _ = check_rates(network, parse_rates(means, "--means") if means is not None else rates)
    if not (mean_rates > 0).all():
        raise PenstockError("solver-w needs mean rates above 0: give --means, such as i1=5,i2=5, or --workload")
    return Exponential(mean_rates.tolist(), max_rates)


def _read_workload(path: Path, names: tuple[str, ...]) -> NDArray[np.float64]:
    """Return recorded rates, one row per record and one column per input."""
    import numpy as np  # noqa: PLC0415
    from pyarrow import ArrowInvalid, types  # noqa: PLC0415
    from pyarrow import csv as arrow_csv  # noqa: PLC0415

    try:
        table = arrow_csv.read_csv(path)
    except (OSError, ArrowInvalid) as error:
        raise PenstockError(f"--workload {path}: {str(error).splitlines()[0]}") from error
    repeated = [name for name in names if table.column_names.count(name) > 1]
    if repeated:
        raise PenstockError(f"--workload {path}: column {repeated[0]!r} comes twice")
    missing = [name for name in names if name not in table.column_names]
    if missing:
        raise PenstockError(f"--workload {path}: no column for input {missing[0]!r}; it has {', '.join(table.column_names)}")
    for name in names:
        kind = table.schema.field(name).type
        if not (types.is_integer(kind) or types.is_floating(kind)):
            raise PenstockError(f"--workload {path}: the rates of {name!r} must be numbers, but they are {kind}")
    return np.column_stack([table[name].to_numpy().astype(np.float64) for name in names])


def _show(network: Network, plan: Plan, planner: Planner) -> None:
    from penstock.cli.drawing import draw_network  # noqa: PLC0415

    console = Console(highlight=False)
    dropping = {name: keep for name, keep in plan.keep.items() if keep < 1.0 - 1e-9}
    state = "overloaded before shedding" if plan.overloaded else "not overloaded"
    if not plan.overloaded and not dropping:
        state += ": nothing is dropped"
    console.print(Text(f"{plan.method}: score {plan.score:.6g}, {state}", style="bold"))
    for note in plan.notes:
        console.print(f"note: {note}", markup=False)
    if len(network.operators) <= _MOST_SHOWN:
        console.print(draw_network(network, plan))
    if dropping:
        table = Table("drop location", "keep", "drop", title="plan", title_justify="left")
        for name, keep in list(dropping.items())[:_MOST_SHOWN]:
            table.add_row(Text(name), f"{keep:.4f}", f"{1 - keep:.1%}")
        console.print(table)
        if len(dropping) > _MOST_SHOWN:
            console.print(f"and {len(dropping) - _MOST_SHOWN:,} more drop locations; --json prints all of them", markup=False)
    console.print(_tabulate_nodes(plan))
    outputs = Table("output", "tuples/s", "weight", title="outputs", title_justify="left")
    for name, rate in list(plan.throughput.items())[:_MOST_SHOWN]:
        outputs.add_row(Text(name), f"{rate:.4g}", f"{network.outputs[name].weight:g}")
    console.print(outputs)
    for label, attribute in (("regions", "regions"), ("linear programs", "programs"), ("table entries", "entries")):
        if hasattr(planner, attribute):
            console.print(Text(f"{label}: {getattr(planner, attribute):,}", style="dim"))
    if hasattr(planner, "error"):
        kind = "expected error" if plan.method == "solver-w" else "error"
        console.print(Text(f"{kind} at most: {planner.error:.2%}", style="dim"))


def _tabulate_nodes(plan: Plan) -> Table:
    """Return the loads of the nodes, the fullest first."""
    table = Table("node", "load", "capacity", "", title="nodes", title_justify="left")
    fullest = sorted(plan.loads, key=lambda name: -plan.loads[name] / plan.capacities[name])
    for name in fullest[:_MOST_SHOWN]:
        share = plan.loads[name] / plan.capacities[name]
        mark = Text("=" * round(20 * min(1.0, share)) + f" {share:.0%}")
        if name == plan.bottleneck and plan.overloaded:
            mark.append("  bottleneck", style="bold red")
        table.add_row(Text(name), f"{plan.loads[name]:.4g}", f"{plan.capacities[name]:.4g}", mark)
    return table
