"""The correspondence of one node: messages in and out, who has been silent, and what went wrong."""

from __future__ import annotations

import logging
from collections.abc import Mapping

from penstock.coordination.mailbox import Mailbox, Message
from penstock.coordination.manager import Manager, Outgoing
from penstock.coordination.measurements import Measurements
from penstock.errors import PenstockError

__all__ = ["MessageExchange", "describe"]

log = logging.getLogger("penstock")

_ALIVE_S = 2.0
_SILENT_PACES = 10.0
_MOST_NOTES = 20


class MessageExchange:
    """Carries messages between a manager and its mailbox.

    A peer that has received nothing for two seconds gets a sign of life. Failures are noted and never raised: a full disk passes,
    and unread messages are still there afterwards.
    """

    def __init__(self, manager: Manager, mailbox: Mailbox, pace_s: float, now_s: float) -> None:
        self._manager, self._mailbox = manager, mailbox
        self._silent_s = max(_SILENT_PACES * pace_s, 3.0 * _ALIVE_S)
        self._sent_s = dict.fromkeys(manager.peers, now_s)
        self._received_s = dict.fromkeys(manager.peers, now_s)
        self.rejected = 0
        """Messages that the manager could not use."""
        self.notes: list[str] = []
        """What went wrong, for a person: the last twenty different notes."""

    @property
    def ignored(self) -> Mapping[str, int]:
        """Messages that the mailbox ignored, by reason."""
        return self._mailbox.ignored

    def receive(self, now_s: float) -> None:
        """Hand every message that has arrived to the manager."""
        for message in self._read_mailbox():
            self._received_s[message.sender] = now_s
            try:
                self._manager.receive(message)
            except Exception as error:  # a message that the manager cannot use must not end a batch
                self.rejected += 1
                self.note(f"from {message.sender}: {describe(error)}")

    def _read_mailbox(self) -> list[Message]:
        try:
            return self._mailbox.receive()
        except (OSError, PenstockError) as error:
            self.note(f"messages could not be read: {error}")
            return []

    def send(self, now_s: float) -> None:
        """Send what the manager has to say, and a sign of life to peers that have received nothing for a while."""
        messages = self._take_messages()
        messages += [(peer, "alive", {}) for peer, sent_s in self._sent_s.items() if now_s - sent_s > _ALIVE_S]
        try:
            for to, kind, body in messages:
                if not self._mailbox.send(to, kind, body):
                    self._manager.note_replaced(to, kind)
                self._sent_s[to] = now_s
        except OSError as error:
            self.note(f"a message could not be sent: {error.strerror}")

    def _take_messages(self) -> list[Outgoing]:
        try:
            return self._manager.take_messages()
        except Exception as error:  # a manager that cannot plan has nothing to say
            self.note(f"the manager failed: {describe(error)}")
            return []

    def tell(self, measurements: Measurements) -> None:
        """Tell the manager what its node has measured."""
        try:
            self._manager.learn(measurements)
        except Exception as error:  # the batch runs, and the manager goes on with what it knows
            self.note(f"the manager could not use the last measurements: {describe(error)}")

    def note(self, note: str) -> None:
        """Note what went wrong, once."""
        if note not in self.notes:
            log.warning("%s", note)
            self.notes = [*self.notes, note][-_MOST_NOTES:]

    def silent_peers(self, now_s: float) -> dict[str, float]:
        """Return the peers that have been silent for long, with the seconds since their last message."""
        silences_s = {peer: now_s - received_s for peer, received_s in self._received_s.items()}
        return {peer: silence_s for peer, silence_s in silences_s.items() if silence_s > self._silent_s}


def describe(error: Exception) -> str:
    """Return what an error says; its kind too if it is not one of ours.

    >>> describe(ValueError("too large"))
    'ValueError: too large'
    """
    return str(error) if isinstance(error, PenstockError) else f"{type(error).__name__}: {error}"
