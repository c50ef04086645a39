"""``penstock network``: checks a network file and shows what follows from it."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import TYPE_CHECKING, Any

import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from penstock.network import Coefficients, Location, Network
    from penstock.network.drops import Drops, GateUnit

__all__ = ["network"]

_MOST_SHOWN = 60


def network(
    path: Path = typer.Argument(..., metavar="NETWORK.yaml", help="The network, as YAML."),
    as_json: bool = typer.Option(False, "--json", help="Print everything as JSON and nothing else."),
) -> None:
    """Check a network and show what follows from it: loads, drop locations, the tree of nodes, fragments."""
    from penstock.network import Coefficients, load_network  # noqa: PLC0415 - commands load what they need
    from penstock.network.coefficients import linearize  # noqa: PLC0415
    from penstock.network.drops import derive_drops  # noqa: PLC0415

    loaded = load_network(path)
    drops = derive_drops(loaded)
    # What a join with windows in seconds puts out per tuple depends on the rates: shown for the greatest ones.
    greatest = {name: stream.max_rate if math.isfinite(stream.max_rate) else 1.0 for name, stream in loaded.inputs.items()}
    coefficients = Coefficients(linearize(loaded, greatest))
    if as_json:
        typer.echo(json.dumps(_to_dict(loaded, coefficients, drops), indent=2))
    else:
        _show(loaded, coefficients, drops)


def _find_max_rate(network: Network, coefficients: Coefficients, name: str) -> float:
    """Return the greatest rate of an input that no node is overloaded by, if it is the only input."""
    loads = coefficients.node_loads[name]
    return min((network.nodes[node].capacity / load for node, load in loads.items() if load > 0), default=math.inf)


def _find_unit(drops: Drops, location: Location) -> GateUnit | None:
    """Return what is dropped whole at a location; ``None`` for rows, and where each node has its own copy of an input."""
    from penstock.network.regions import GateId  # noqa: PLC0415

    return drops.units.get(GateId(location.node or "", location.name))


def _explain_clusters(network: Network) -> str | None:
    """Return why clusters, and the nodes that are in none, do not form a tree; ``None`` if they do."""
    from penstock.network import Coefficients  # noqa: PLC0415
    from penstock.network.clusters import merge_clusters  # noqa: PLC0415

    return Coefficients(merge_clusters(network)).not_a_tree


def _to_dict(network: Network, coefficients: Coefficients, drops: Drops) -> dict[str, Any]:
    max_rates = {name: _find_max_rate(network, coefficients, name) for name in network.inputs}
    return {
        "operators": {
            name: {"load": coefficients.load[name], "quality": coefficients.quality[name]} for name in network.operators
        },
        "inputs": {
            name: {
                "load": coefficients.load[name],
                "quality": coefficients.quality[name],
                "node_loads": coefficients.node_loads[name],
                "max_feasible_rate": max_rates[name] if math.isfinite(max_rates[name]) else None,
            }
            for name in network.inputs
        },
        "locations": [location.name for location in coefficients.locations],
        "tree": coefficients.not_a_tree is None,
        "not_a_tree": coefficients.not_a_tree,
        "clusters": {name: list(members) for name, members in network.clusters.items()},
        "clusters_not_a_tree": _explain_clusters(network),
        "parents": {name: list(parents) for name, parents in coefficients.parents.items()},
        "fragments": [list(nodes) for nodes in coefficients.fragments],
        "bilinear": list(network.bilinear),
        "units": {
            node: {name: unit.describe() for name, unit in units.items()} for node in network.nodes if (units := drops.at(node))
        },
        "one_keep": [list(names) for names in drops.ties.groups],
        "nothing_dropped": sorted(drops.ties.fixed),
        "notes": list(drops.notes),
    }


def _show(network: Network, coefficients: Coefficients, drops: Drops) -> None:
    from penstock.cli.drawing import draw_network  # noqa: PLC0415

    console = Console(highlight=False)
    if len(network.operators) <= _MOST_SHOWN:
        console.print(draw_network(network))
    console.print(_tabulate_inputs(network, coefficients))
    console.print(_tabulate_operators(network, coefficients))
    not_shown = len(network.operators) - _MOST_SHOWN
    if not_shown > 0:
        console.print(f"and {not_shown:,} more operators: --json has all of them")
    units = {location.name: _find_unit(drops, location) for location in coefficients.locations}
    names = [name if unit is None else f"{name} ({unit.describe()})" for name, unit in units.items()]
    shown = ", ".join(names[:_MOST_SHOWN]) + (f" and {len(names) - _MOST_SHOWN:,} more" if len(names) > _MOST_SHOWN else "")
    console.print(f"drop locations ({len(names):,}): {shown}", markup=False)
    not_a_tree = coefficients.not_a_tree
    console.print("nodes: a tree" if not_a_tree is None else f"nodes: not a tree, because {not_a_tree}", markup=False)
    if network.clusters:
        reason = _explain_clusters(network)
        console.print("clusters: a tree" if reason is None else f"clusters: not a tree, because {reason}", markup=False)
    console.print(f"fragments that can be planned independently: {len(coefficients.fragments):,}", markup=False)
    for group in drops.ties.groups:
        console.print(f"with one keep, to drop the same: {', '.join(group)}", markup=False)
    for name in network.bilinear:
        console.print(
            f"join {name}: its windows are in seconds, so keys are dropped with one keep for both sides; only exact plans it",
            markup=False,
        )
    for note in drops.notes:
        console.print(f"note: {note}", markup=False)


def _tabulate_inputs(network: Network, coefficients: Coefficients) -> Table:
    table = Table(
        "input", "load per tuple", "value per tuple", "feasible alone", "load by node", title="inputs", title_justify="left"
    )
    for name in list(network.inputs)[:_MOST_SHOWN]:
        table.add_row(
            Text(name),
            f"{coefficients.load[name]:.4g} s",
            f"{coefficients.quality[name]:.4g}",
            f"{_find_max_rate(network, coefficients, name):.4g}/s",
            Text(", ".join(f"{node} {load:.4g}" for node, load in coefficients.node_loads[name].items())),
        )
    return table


def _tabulate_operators(network: Network, coefficients: Coefficients) -> Table:
    headings = ("operator", "node", "load per tuple, from here on", "value per tuple")
    table = Table(*headings, title="operators", title_justify="left")
    for name in list(network.operators)[:_MOST_SHOWN]:
        table.add_row(
            Text(name),
            Text(network.operators[name].node),
            f"{coefficients.load[name]:.4g} s",
            f"{coefficients.quality[name]:.4g}",
        )
    return table
