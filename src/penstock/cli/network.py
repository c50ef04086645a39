"""``penstock network``: what follows from a network file."""

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

_SHOWN = 60


def network(
    path: Path = typer.Argument(..., metavar="NETWORK.yaml", help="The network, as YAML."),
    as_json: bool = typer.Option(False, "--json", help="Print everything as JSON and nothing else."),
) -> None:
    """Check a network and show what follows from it: loads, drop locations, the tree of nodes, fragments."""
    from penstock.network import Coefficients, load_network  # noqa: PLC0415 - commands load what they need

    found = load_network(path)
    derived = Coefficients(found)
    if as_json:
        typer.echo(json.dumps(_values(found, derived), indent=2))
    else:
        _show(found, derived)


def _most(found: Network, derived: Coefficients, name: str) -> float:
    loads = derived.node_loads[name]
    return min((found.nodes[node].capacity / load for node, load in loads.items() if load > 0), default=math.inf)


def _values(found: Network, derived: Coefficients) -> dict[str, Any]:
    limits = {name: _most(found, derived, name) for name in found.inputs}
    return {
        "operators": {name: {"load": derived.load[name], "quality": derived.quality[name]} for name in found.operators},
        "inputs": {
            name: {
                "load": derived.load[name],
                "quality": derived.quality[name],
                "node_loads": derived.node_loads[name],
                "max_feasible_rate": limits[name] if math.isfinite(limits[name]) else None,
            }
            for name in found.inputs
        },
        "locations": [location.name for location in derived.locations],
        "tree": derived.not_a_tree is None,
        "not_a_tree": derived.not_a_tree,
        "parents": {name: list(parents) for name, parents in derived.parents.items()},
        "fragments": [list(nodes) for nodes in derived.fragments],
        "bilinear": list(found.bilinear),
    }


def _show(found: Network, derived: Coefficients) -> None:
    from penstock.cli.drawing import drawn  # noqa: PLC0415

    console = Console(highlight=False)
    if len(found.operators) <= _SHOWN:
        console.print(drawn(found))
    inputs = Table(
        "input", "load of a tuple", "worth at the outputs", "feasible alone", "on nodes", title="inputs", title_justify="left"
    )
    for name in list(found.inputs)[:_SHOWN]:
        nodes = ", ".join(f"{node} {load:.4g}" for node, load in derived.node_loads[name].items())
        inputs.add_row(
            Text(name),
            f"{derived.load[name]:.4g} s",
            f"{derived.quality[name]:.4g}",
            f"{_most(found, derived, name):.4g}/s",
            Text(nodes),
        )
    console.print(inputs)
    operators = Table("operator", "node", "load of a tuple from here on", "worth", title="operators", title_justify="left")
    for name in list(found.operators)[:_SHOWN]:
        operators.add_row(
            Text(name), Text(found.operators[name].node), f"{derived.load[name]:.4g} s", f"{derived.quality[name]:.4g}"
        )
    console.print(operators)
    rest = len(found.operators) - _SHOWN
    if rest > 0:
        console.print(f"and {rest:,} operators more; --json has them all")
    names = [location.name for location in derived.locations]
    shown = ", ".join(names[:_SHOWN]) + (f" and {len(names) - _SHOWN:,} more" if len(names) > _SHOWN else "")
    console.print(f"drop locations ({len(names):,}): {shown}", markup=False)
    tree = derived.not_a_tree
    console.print("nodes: a tree" if tree is None else f"nodes: no tree, because {tree}", markup=False)
    console.print(f"fragments that can be planned apart: {len(derived.fragments):,}", markup=False)
    for name in found.bilinear:
        console.print(f"join {name}: windows in seconds, bilinear: no plan covers it", markup=False)
