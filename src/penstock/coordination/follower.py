"""A node under a coordinator: it reports its measurements and follows the coordinator's plans."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np
from numpy.typing import NDArray

from penstock.coordination.local import Local
from penstock.coordination.mailbox import Message
from penstock.coordination.manager import Limits, Manager, Outgoing
from penstock.coordination.measurements import Measurements, OperatorTable, entries_of
from penstock.errors import PenstockError
from penstock.network.model import Network

__all__ = ["COORDINATOR", "Follower"]

COORDINATOR = "coordinator"
_MOST_PLANS = 256
_LEAST_CHANGE = 0.005
_DIGITS = 7


class Follower(Manager):
    """Puts a coordinator's plans into effect.

    The coordinator uploads numbered plans and announces the number of the plan in force. A plan limits what enters at the node's
    inputs; what arrives from other nodes has been limited there. Until the first plan arrives the node sheds for itself.

    Parameters
    ----------
    network
        The network.
    node
        The node to manage.
    cluster
        The cluster whose coordinator plans for the node; by default, one coordinator plans for the whole network. Streams from
        other clusters are limited where they enter the cluster.

    References
    ----------
    N. Tatbul, U. Cetintemel, S. Zdonik, "Staying FIT", VLDB 2007, sections 4 and 7.

    """

    name: ClassVar[str] = "coordinator"

    def __init__(self, network: Network, node: str, cluster: str | None = None) -> None:
        super().__init__(network, node)
        self._coordinator = COORDINATOR if cluster is None else cluster
        self._local = Local(network, node)
        members = network.nodes if cluster is None else network.clusters[cluster]
        self._inputs = frozenset(
            name for name in entries_of(network, node) if network.node_of(name.partition("->")[0]) not in members
        )
        self._plans: dict[int, Limits] = {}  # the least recently used first
        self._number: int | None = None
        self._unsent: Measurements | None = None
        # A coordinator of the whole network plans anew after 2%; that of a cluster overloads nobody by less than that either.
        self._report = ChangeReport(_LEAST_CHANGE if cluster is None else 0.0)
        self._requested: int | None = None
        self._has_greeted = False

    @property
    def peers(self) -> tuple[str, ...]:
        """The coordinator."""
        return (self._coordinator,)

    def learn(self, measurements: Measurements) -> None:
        """Report the measurements, and use them as long as there is no plan."""
        self._unsent = measurements
        self._local.learn(measurements)

    def decide(self, rates: Mapping[str, float]) -> Limits:
        """Return what the plan in force lets in."""
        if self._number == 0:
            return Limits(reason="not overloaded")
        plan = self._plans.get(self._number) if self._number is not None else None
        return plan if plan is not None else self._local.decide(rates)

    def receive(self, message: Message) -> None:
        """Store a plan, or put the one that is announced into force."""
        try:
            if message.kind == "plan":
                self._store(message.body)
            elif message.kind == "announce":
                self._number = int(message.body["number"])
                if self._number in self._plans:
                    self._plans[self._number] = self._plans.pop(self._number)
            elif message.kind == "report":  # the coordinator has just started and knows nothing of this node
                self._report.reset()
            elif message.kind != "alive":
                raise PenstockError(f"a node does not know messages of kind {message.kind!r}")
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            if isinstance(error, PenstockError):
                raise
            raise PenstockError(f"a message of kind {message.kind!r} makes no sense: {error!r}") from error
        is_missing = self._number is not None and self._number > 0 and self._number not in self._plans
        self._requested = self._number if is_missing else None

    def _store(self, body: Mapping[str, Any]) -> None:
        number = int(body["number"])
        flows = {str(name): float(flow) for name, flow in body["flows"].items() if name in self._inputs}
        keep = {str(name): min(1.0, max(0.0, float(share))) for name, share in body["keep"].items()}
        self._plans.pop(number, None)
        self._plans[number] = Limits(flows, keep, f"plan {number}")
        for old in list(self._plans)[:-_MOST_PLANS]:
            del self._plans[old]

    def take_messages(self) -> list[Outgoing]:
        """Return a greeting at the start, new measurements, and a request for a plan that was announced but never arrived."""
        messages: list[Outgoing] = []
        if not self._has_greeted:
            messages.append((self._coordinator, "hello", {}))
            self._has_greeted = True
        if self._unsent is not None:
            messages.append((self._coordinator, "measurements", self._report.take(self._unsent)))
            self._unsent = None
        if self._requested is not None:
            messages.append((self._coordinator, "request", {"number": self._requested}))
            self._requested = None
        return messages

    def note_replaced(self, to: str, kind: str) -> None:
        """Report again what the coordinator has not read: a later report has replaced it."""
        if to == self._coordinator and kind == "measurements":
            self._report.note_replaced()

    def status(self) -> dict[str, Any]:
        """Return the number of the plan in force."""
        return {"plan": self._number}


class ChangeReport:
    """What to report of a node's operators, cost and selectivity: all at first, then those that have changed by half a per cent.

    The coordinator plans anew after 2%, so nothing that matters is left out, and a report stays small however many operators the
    node has.

    Parameters
    ----------
    least_change
        The relative change that is not reported.

    """

    def __init__(self, least_change: float = _LEAST_CHANGE) -> None:
        self._least_change = least_change
        self._names: tuple[str, ...] | None = None
        self._told: NDArray[np.float64] = np.zeros((0, 2))  # costs and selectivities, as reported; nan if not
        self._last: list[NDArray[np.int64]] = [np.zeros(0, dtype=np.int64)] * 2  # positions in the last two reports

    def reset(self) -> None:
        """Report everything the next time."""
        self._names = None

    def note_replaced(self) -> None:
        """Note that the report before the last one was not read: what was in it is reported again."""
        self._told[self._last[0]] = np.nan

    def take(self, measurements: Measurements) -> dict[str, Any]:
        """Return the body of a message with what has changed, and consider it reported."""
        table = OperatorTable.of(measurements.operators)
        is_whole = self._names != table.names
        now = table.values_by_operator[:, (0, 2)]
        if is_whole:
            self._names, self._told = table.names, np.full(now.shape, np.nan)
        is_same = np.abs(now - self._told) <= self._least_change * np.maximum(now, self._told)  # false for what was not reported
        changed = np.flatnonzero(~is_same.all(axis=1))
        self._told[changed] = now[changed]
        self._last = [self._last[1], changed] if not is_whole else [np.zeros(0, dtype=np.int64), changed]
        names = table.names if is_whole else [table.names[position] for position in changed.tolist()]
        numbers = _shorten(now[changed]) if self._least_change else now[changed]
        return {
            "node": measurements.node,
            "capacity": measurements.capacity,
            "rates": dict(measurements.rates),
            "names": list(names),
            "costs": numbers[:, 0].tolist(),
            "selectivities": numbers[:, 1].tolist(),
            "is_whole": is_whole,
        }


def _shorten(numbers: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return numbers with few digits, which take half the time to write.

    >>> _shorten(np.array([0.0012345678912345, 0.0])).tolist()
    [0.001234568, 0.0]
    """
    scales = 10.0 ** (_DIGITS - 1 - np.floor(np.log10(np.where(numbers > 0, numbers, 1.0))))
    shortened: NDArray[np.float64] = np.where(np.isfinite(scales), np.round(numbers * scales) / scales, numbers)
    return shortened
