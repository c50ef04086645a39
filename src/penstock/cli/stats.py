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
    directory: Path = typer.Argument(..., metavar="DIR", help="The directory in which a network runs, or ran."),
    as_json: bool = typer.Option(False, "--json", help="Print everything as JSON and nothing else."),
) -> None:
    """Show what a network has measured: costs and selectivities with their errors, rates, gates, outputs, messages."""
    from penstock.cluster.node import read_status  # noqa: PLC0415 - commands load what they need

    found: dict[str, dict[str, Any]] = {}
    for path in sorted(directory.glob("nodes/*/status.json")):
        status = read_status(path)
        if status is not None:
            found[path.parent.name] = status
    coordinator = read_status(directory / "coordinator" / "status.json")
    if not found:
        raise PenstockError(f"{directory}: no node has reported there; give the --dir of a network that runs or ran")
    if as_json:
        typer.echo(json.dumps(found | ({"coordinator": coordinator} if coordinator is not None else {}), indent=2))
        return
    console = Console(highlight=False)
    for node, status in found.items():
        _show(console, node, status)
    if coordinator is not None:
        made = f"{coordinator['plans_computed']} plans made, number {coordinator['plan']} in force"
        console.print(
            Text(f"coordinator: {coordinator['method']}, {made}, heard of {', '.join(coordinator['reporting']) or 'nobody'}")
        )
        _show_ignored(console, coordinator)


def _show(console: Console, node: str, status: dict[str, Any]) -> None:
    measurements = status["measurements"]
    age = max(0.0, time.time() - status["at_s"])
    console.print(
        Text(f"node {node}: capacity {measurements['capacity']:.2f} free, {status['reason'] or 'all let in'}, {age:.0f} s ago")
    )
    operators = Table("operator", "cost, ms a tuple", "declared", "selectivity", "declared")
    for name, (cost, cost_error, ratio, ratio_error) in measurements["operators"].items():
        declared_cost, declared_ratio = status["declared"][name]
        operators.add_row(
            Text(name),
            f"{cost * 1e3:.4g} ± {cost_error * 1e3:.2g}",
            f"{declared_cost * 1e3:.4g}",
            f"{ratio:.3g} ± {ratio_error:.2g}",
            f"{declared_ratio:.3g}",
        )
    console.print(operators)
    groups = Table("query", "operators", "ms a tuple, together", "ms a batch beside", "batches", "every, s")
    for name, group in status["queries"].items():
        groups.add_row(
            Text(name),
            Text(", ".join(group["operators"])),
            f"{group['cost'] * 1e3:.4g} ± {group['cost_error'] * 1e3:.2g}",
            f"{group['overhead_s'] * 1e3:.0f} ± {group['overhead_error'] * 1e3:.0f}",
            str(group["batches"]),
            f"{status['cycles_s'].get(name, float('nan')):.2f}",
        )
    console.print(groups)
    gates = Table("gate", "wants in, a second", "may, a second", "offered", "kept", "shed")
    for name, (offered, kept) in sorted(status["gates"].items()):
        rate, limit = measurements["rates"].get(name), status["limits"].get(name)
        gates.add_row(
            Text(name),
            "" if rate is None else f"{rate:.4g}",
            "" if limit is None else f"{limit:.4g}",
            f"{offered:,}",
            f"{kept:,}",
            f"{1 - kept / offered:.1%}" if offered else "",
        )
    console.print(gates)
    for name, total in status["outputs"].items():
        late = f", {total['delay_sum_s'] / total['delay_rows']:.2f} s late on average" if total["delay_rows"] else ""
        console.print(Text(f"output {name}: {total['rows']:,} rows{late}"))
    for peer, seconds in status["silent_s"].items():
        console.print(Text(f"{peer} has not been heard of for {seconds:.0f} s: the last plan stays in force"))
    _show_ignored(console, status)
    for note in status["notes"]:
        console.print(Text(f"note: {note}"))


def _show_ignored(console: Console, status: dict[str, Any]) -> None:
    ignored = {reason: count for reason, count in status["ignored"].items() if count}
    if ignored or status["rejected"]:
        parts = [f"{count} {reason}" for reason, count in ignored.items()] + (
            [f"{status['rejected']} wrong"] if status["rejected"] else []
        )
        console.print(Text(f"messages ignored: {', '.join(parts)}"))
