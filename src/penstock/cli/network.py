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
    from penstock.network import Coefficients, Network

__all__ = ["network"]

_MOST_SHOWN = 60


def network(
    path: Path = typer.Argument(..., metavar="NETWORK.yaml", help="The network, as YAML."),
    as_json: bool = typer.Option(False, "--json", help="Print everything as JSON and nothing else."),
) -> None:
    """Check a network and show what follows from it: loads, drop locations, the tree of nodes, fragments."""
    from penstock.network import Coefficients, load_network  # noqa: PLC0415 - commands load what they need

    loaded = load_network(path)
    coefficients = Coefficients(loaded)
    if as_json:
        typer.echo(json.dumps(_to_dict(loaded, coefficients), indent=2))
    else:
        _show(loaded, coefficients)


def _find_max_rate(network: Network, coefficients: Coefficients, name: str) -> float:
    """Return the greatest rate of an input that no node is overloaded by, if it is the only input."""
    loads = coefficients.node_loads[name]
    return min((network.nodes[node].capacity / load for node, load in loads.items() if load > 0), default=math.inf)


def _to_dict(network: Network, coefficients: Coefficients) -> dict[str, Any]:
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
        "parents": {name: list(parents) for name, parents in coefficients.parents.items()},
        "fragments": [list(nodes) for nodes in coefficients.fragments],
        "bilinear": list(network.bilinear),
    }


def _show(network: Network, coefficients: Coefficients) -> None:
    from penstock.cli.drawing import draw_network  # noqa: PLC0415

    console = Console(highlight=False)
    if len(network.operators) <= _MOST_SHOWN:
        console.print(draw_network(network))
    console.print(_tabulate_inputs(network, coefficients))
    console.print(_tabulate_operators(network, coefficients))
    not_shown = len(network.operators) - _MOST_SHOWN
    if not_shown > 0:
        console.print(f"and {not_shown:,} more operators: --json has all of them")
    names = [location.name for location in coefficients.locations]
    shown = ", ".join(names[:_MOST_SHOWN]) + (f" and {len(names) - _MOST_SHOWN:,} more" if len(names) > _MOST_SHOWN else "")
    console.print(f"drop locations ({len(names):,}): {shown}", markup=False)
    not_a_tree = coefficients.not_a_tree
    console.print("nodes: a tree" if not_a_tree is None else f"nodes: not a tree, because {not_a_tree}", markup=False)
    console.print(f"fragments that can be planned independently: {len(coefficients.fragments):,}", markup=False)
    for name in network.bilinear:
        console.print(
            f"join {name}: its windows are in seconds, so its output is bilinear in the two rates and no plan covers it",
            markup=False,
        )


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
