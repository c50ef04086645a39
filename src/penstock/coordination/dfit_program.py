"""Planning without tables: what nodes of D-FIT send each other where a table would be too large."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from penstock.coordination.manager import Limits, Outgoing
from penstock.errors import PenstockError
from penstock.network.model import Network
from penstock.planning.flows import Flows, feasible_keep
from penstock.planning.inequalities import Inequalities, InequalityProgram, combine_inequalities

__all__ = ["SubtreeProgram"]


class SubtreeProgram:
    """The inequalities of a node and of all nodes below it, and the exact plan under them.

    A node whose table would be too large asks its children for inequalities, and they ask theirs. It sends its parent only its
    reach, so the parent asks as well. From then on, the nodes on the way to the root and all below them plan exactly: what a
    parent must know of a child are its capacity, its loads and its worth, not samples of them.

    Parameters
    ----------
    children
        The children of the node.

    """

    def __init__(self, children: Sequence[str]) -> None:
        self._children = tuple(children)
        self._of_children: dict[str, Inequalities] = {}
        self._is_asked: dict[str, bool] = dict.fromkeys(children, False)  # what each child was told last
        self.is_wanted = False
        """Whether the parent has asked for inequalities."""
        self._is_needed = False
        self._is_stale = True
        self._flows: Flows | None = None
        self._program: InequalityProgram | None = None
        self._sent: Inequalities | None = None
        self.trouble: str | None = None
        """Why there is no plan though all inequalities are here."""

    # -- what it knows -------------------------------------------------------------------------------------------------

    def note_change(self) -> None:
        """Build the inequalities again the next time they are needed."""
        self._is_stale = True

    def forget_child(self, child: str) -> None:
        """Assume that a child has just started: it was not asked for anything."""
        self._is_asked[child] = False

    def forget_parent(self) -> None:
        """Assume that the parent has just started: it has asked for nothing and has nothing."""
        self.is_wanted, self._sent = False, None

    def receive(self, child: str, body: Mapping[str, Any]) -> None:
        """Take the inequalities of a child."""
        if child not in self._children:
            raise PenstockError(f"inequalities from {child!r}, which is not a child")
        self._of_children[child] = Inequalities.from_body(body)
        self._is_stale = True

    def update(self, part: Network, *, is_needed: bool) -> None:
        """Build the inequalities if they are needed here or by the parent and those of all children are here.

        Parameters
        ----------
        part
            What the node runs, with the facts in force.
        is_needed
            Whether this node has no table.

        """
        self._is_needed = is_needed
        if not (is_needed or self.is_wanted):
            self._flows = self._program = None
            self._is_stale = True
        elif self._is_stale and all(child in self._of_children for child in self._children):
            self._is_stale = False
            self._flows, self.trouble = Flows(part), None
            inequalities = combine_inequalities(self._flows, [self._of_children[child] for child in self._children])
            try:
                if self._program is None:
                    self._program = InequalityProgram(inequalities)
                else:
                    self._program.update(inequalities)
            except PenstockError as error:  # numbers too far apart: rates are scaled by one factor
                self._program, self.trouble = None, str(error)

    @property
    def has_plans(self) -> bool:
        """Whether it can plan."""
        return self._program is not None

    # -- what it decides -----------------------------------------------------------------------------------------------

    def plan(self, rates: Mapping[str, float]) -> Limits:
        """Return the best limits at rates that overload this node or one below it.

        Parameters
        ----------
        rates
            Rows per second, by entry of this node and by input of the nodes below.

        """
        if self._program is None or self._flows is None:
            raise PenstockError("there are no inequalities to plan with")
        flows, columns = self._flows, self._program.inequalities.columns
        _, x = self._program.solve(np.array([rates.get(name, 0.0) for name in columns]))
        arriving = np.array([rates.get(name, 0.0) for name in flows.inputs])
        unit = self._program.inequalities.unit
        keep = feasible_keep(flows, arriving, x[: unit.size] * unit)
        shares = dict(zip(flows.location_index, keep.tolist(), strict=True))
        entering = {name: rate * shares.pop(name) for name, rate in zip(flows.inputs, arriving.tolist(), strict=True)}
        return Limits(entering, {name: share for name, share in shares.items() if share < 1.0}, "exact plan")

    # -- what it sends -------------------------------------------------------------------------------------------------

    def take_messages(self, parent: str | None) -> list[Outgoing]:
        """Return requests for the children, and the inequalities if the parent wants them and lacks the last ones."""
        wants = self._is_needed or self.is_wanted
        messages: list[Outgoing] = []
        for child, is_asked in self._is_asked.items():
            if is_asked != wants:
                messages.append((child, "want", {"inequalities": wants}))
                self._is_asked[child] = wants
        if parent is None or not self.is_wanted or self._program is None:
            return messages
        inequalities = self._program.inequalities
        if self._sent is None or (inequalities is not self._sent and not inequalities.is_close_to(self._sent)):
            messages.append((parent, "inequalities", inequalities.to_body()))
            self._sent = inequalities
        return messages
