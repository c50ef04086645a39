"""``penstock stats``: what a running network has measured of itself."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

from penstock.errors import PenstockError

__all__ = ["stats"]


def stats(
    directory: Path = typer.Argument(..., metavar="DIR", help="The directory in which a network runs or ran."),
    as_json: bool = typer.Option(False, "--json", help="Print everything as JSON and nothing else."),
) -> None:
    """Show what a network has measured: costs and selectivities with their errors, rates, gates, outputs, messages."""
    from penstock.cluster.status import read_status  # noqa: PLC0415 - commands load what they need

    nodes: dict[str, dict[str, Any]] = {}
    for path in sorted(directory.glob("nodes/*/status.json")):
        status = read_status(path)
        if status is not None:
            nodes[path.parent.name] = status
    paths = {"coordinator": directory / "coordinator" / "status.json"}
    paths |= {f"cluster {path.parent.name}": path for path in sorted(directory.glob("clusters/*/status.json"))}
    coordinators = {name: status for name, path in paths.items() if (status := read_status(path)) is not None}
    if not nodes:
        raise PenstockError(f"{directory}: no node has reported there; give the --dir of a network that runs or ran")
    if as_json:
        typer.echo(json.dumps(nodes | coordinators, indent=2))
        return
    console = Console(highlight=False)
    for node, status in nodes.items():
        _show_node(console, node, status)
    for name, status in coordinators.items():
        _show_coordinator(console, name, status)


def _show_coordinator(console: Console, name: str, status: dict[str, Any]) -> None:
    plan = "no plan yet" if status["plan"] is None else f"plan {status['plan']} in force"
    reporting = ", ".join(status["reporting"]) or "none"
    console.print(
        Text(f"{name}: {status['method']}, {status['plans_computed']} plans computed, {plan}, reporting nodes: {reporting}")
    )
    _show_ignored(console, status)


def _show_node(console: Console, node: str, status: dict[str, Any]) -> None:
    age_s = max(0.0, time.time() - status["at_s"])
    capacity = status["measurements"]["capacity"]
    decision = status["reason"] or "no limits"
    console.print(Text(f"node {node}: capacity {capacity:.2f} for operators, {decision}, reported {age_s:.0f} s ago"))
    console.print(_tabulate_operators(status))
    console.print(_tabulate_queries(status))
    console.print(_tabulate_gates(status))
    for name, total in status["outputs"].items():
        delay = f", mean delay {total['delay_sum_s'] / total['delay_rows']:.2f} s" if total["delay_rows"] else ""
        console.print(Text(f"output {name}: {total['rows']:,} rows{delay}"))
    for peer, silence_s in status["silent_s"].items():
        console.print(Text(f"no message from {peer} for {silence_s:.0f} s: the last plan stays in force"))
    _show_ignored(console, status)
    for note in status["notes"]:
        console.print(Text(f"note: {note}"))


def _tabulate_operators(status: dict[str, Any]) -> Table:
    table = Table("operator", "cost, ms per tuple", "declared", "selectivity", "declared")
    for name, (cost, cost_error, selectivity, selectivity_error) in status["measurements"]["operators"].items():
        declared_cost, declared_selectivity = status["declared"][name]
        table.add_row(
            Text(name),
            f"{cost * 1e3:.4g} ± {cost_error * 1e3:.2g}",
            f"{declared_cost * 1e3:.4g}",
            f"{selectivity:.3g} ± {selectivity_error:.2g}",
            f"{declared_selectivity:.3g}",
        )
    return table


def _tabulate_queries(status: dict[str, Any]) -> Table:
    table = Table("query", "operators", "ms per tuple, all operators", "overhead, ms per batch", "batches", "batch interval, s")
    for name, query in status["queries"].items():
        table.add_row(
            Text(name),
            Text(", ".join(query["operators"])),
            f"{query['cost'] * 1e3:.4g} ± {query['cost_error'] * 1e3:.2g}",
            f"{query['overhead_s'] * 1e3:.0f} ± {query['overhead_error'] * 1e3:.0f}",
            str(query["batches"]),
            f"{status['cycles_s'].get(name, float('nan')):.2f}",
        )
    return table


def _tabulate_gates(status: dict[str, Any]) -> Table:
    table = Table("gate", "arriving, tuples/s", "limit, tuples/s", "offered", "kept", "shed")
    for name, (offered, kept) in sorted(status["gates"].items()):
        rate, limit = status["measurements"]["rates"].get(name), status["limits"].get(name)
        table.add_row(
            Text(name),
            "" if rate is None else f"{rate:.4g}",
            "" if limit is None else f"{limit:.4g}",
            f"{offered:,}",
            f"{kept:,}",
            f"{1 - kept / offered:.1%}" if offered else "",
        )
    return table


def _show_ignored(console: Console, status: dict[str, Any]) -> None:
    counts = {reason: count for reason, count in status["ignored"].items() if count}
    if status["rejected"]:
        counts["unusable"] = status["rejected"]
    if counts:
        console.print(Text(f"messages ignored: {', '.join(f'{count} {reason}' for reason, count in counts.items())}"))
