"""A query network as a tree in the terminal."""

from __future__ import annotations

from rich.text import Text
from rich.tree import Tree

from penstock.network.drops import derive_drops
from penstock.network.model import Network, arc_name
from penstock.planning.plan import Plan

__all__ = ["draw_network"]


def draw_network(network: Network, plan: Plan | None = None) -> Tree:
    """Draw every input with all that it feeds; with a plan, also the rates and where rows are dropped."""
    root = Tree(Text("network", style="bold"), guide_style="dim")
    units = {gate.name: unit for gate, unit in derive_drops(network).units.items()}
    drawn: set[str] = set()
    bottleneck = plan.bottleneck if plan is not None and plan.overloaded else None

    def label(source: str | None, name: str) -> Text:
        text = Text(name, style="bold" if name in network.inputs else "")
        operator = network.operators.get(name)
        if operator is not None:
            kind = "" if operator.kind == "map" else f"{operator.kind} "
            text.append(f"  {kind}on ", style="dim")
            text.append(operator.node, style="bold red" if operator.node == bottleneck else "dim")
            text.append(f", cost {operator.cost:g}, selectivity {operator.selectivity:g}", style="dim")
        elif name in network.outputs:
            text.append(f"  output, weight {network.outputs[name].weight:g}", style="dim")
        unit = units.get(name if source is None else arc_name(source, name))
        if unit is not None:
            text.append(f"  drops {unit.describe()}", style="cyan")
        if plan is not None:
            if source is None:
                text.append(f"  {plan.rates[name]:g}/s", style="dim")
            if name in network.outputs:
                text.append(f"  {plan.throughput[name]:.4g}/s", style="green")
            keep = plan.keep.get(name if source is None else arc_name(source, name), 1.0)
            if keep < 1.0 - 1e-9:
                text.append(f"  > keep {keep:.1%}", style="bold yellow")
        return text

    def grow(branch: Tree, name: str) -> None:
        for consumer in network.consumers.get(name, ()):
            is_repeated = consumer in drawn
            drawn.add(consumer)
            text = label(name, consumer)
            if is_repeated and network.consumers.get(consumer):
                text.append("  (see above)", style="dim")
            below = branch.add(text)
            if not is_repeated:
                grow(below, consumer)

    for name in network.inputs:
        grow(root.add(label(None, name)), name)
    return root
