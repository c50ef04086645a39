"""What a row that enters a node costs there, as measured."""

from __future__ import annotations

from penstock.coordination.measurements import FactsOfNode, Measurements
from penstock.network.coefficients import part_of
from penstock.network.facts import Facts
from penstock.network.model import Network
from penstock.planning.flow_structure import compile_structure

__all__ = ["EntryLoads"]


class EntryLoads:
    """CPU seconds per row that enters a node, by entry, over all operators behind it if nothing is dropped.

    The network is walked once. New measurements take a few array operations, however many operators there are.

    Examples
    --------
    >>> from penstock.network import NetworkBuilder
    >>> network = NetworkBuilder().node("A").input("i").operator("a", "A", "i", cost=0.25).output("q", "a").build()
    >>> EntryLoads(network, "A").compute(Measurements.from_declaration(network, "A"))
    {'i': 0.25}

    """

    def __init__(self, network: Network, node: str) -> None:
        part = part_of(network, node)
        self._entries = tuple(part.inputs)
        self._structure = compile_structure(part, {name: number for number, name in enumerate(self._entries)})
        self._facts_of_node = FactsOfNode(part, node)
        self._declared = Facts.from_declaration(part)

    def compute(self, measurements: Measurements) -> dict[str, float]:
        """Return the loads by entry."""
        facts = self._facts_of_node.enter(measurements, self._declared)
        loads = self._structure.loads(1, self._structure.evaluate(facts.selectivities), facts.costs)
        by_entry = dict.fromkeys(self._entries, 0.0)
        by_entry |= zip((self._entries[column] for column in loads.columns.tolist()), loads.values.tolist(), strict=True)
        return by_entry
