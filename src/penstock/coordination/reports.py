"""What nodes have reported to whoever plans for them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from penstock.coordination.mailbox import Mailbox, Message
from penstock.coordination.measurements import Measurements, OperatorTable
from penstock.errors import PenstockError
from penstock.network.model import Network, arc_name

__all__ = ["Reports", "read_rates"]


class Reports:
    """The measurements of nodes that report all of their operators at first, and then what has changed.

    Parameters
    ----------
    mailbox
        Carries the request for a whole report to a node that reports changes while the start is missing.

    """

    def __init__(self, mailbox: Mailbox) -> None:
        self._mailbox = mailbox
        self.measurements: dict[str, Measurements] = {}
        """By node: all that it has reported."""
        self._reporting: set[str] = set()  # nodes that have reported all of their operators since the start

    def take(self, message: Message) -> Measurements:
        """Take a report and return what it says, without what was reported before.

        Raises
        ------
        PenstockError
            If the measurements are those of another node than the sender.

        """
        measurements = Measurements.from_body(message.body)
        if measurements.node != message.sender:
            raise PenstockError(f"these are the measurements of another node, {measurements.node!r}")
        if message.body.get("is_whole", True):
            self._reporting.add(message.sender)
        elif message.sender not in self._reporting:  # it reports changes, and the start is missing
            self._mailbox.send(message.sender, "report", {})
        merged = measurements
        if message.sender in self.measurements:
            known, changes = (OperatorTable.of(m.operators) for m in (self.measurements[message.sender], measurements))
            merged = replace(measurements, operators=known.replace(changes))
        self.measurements[measurements.node] = merged
        return measurements


def read_rates(network: Network, measurements: Iterable[Measurements]) -> dict[str, float] | None:
    """Return the rate of each input, or ``None`` until one of the nodes that read it has reported.

    Several nodes may read copies of an input: the greatest rate counts.
    """
    rates: dict[str, float] = {}
    by_entry: dict[str, float] = {}
    for reported in measurements:
        for entry, rate in reported.rates.items():
            by_entry[entry] = max(rate, by_entry.get(entry, 0.0))
    for name in network.inputs:
        copies = (name, *(arc_name(name, consumer) for consumer in network.consumers[name]))
        known = [by_entry[entry] for entry in copies if entry in by_entry]
        if not known:
            return None
        rates[name] = max(known)
    return rates
