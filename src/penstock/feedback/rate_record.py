"""What one job says about one topic: a small record, as JSON, and the view that a producer has of such records."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass

__all__ = ["RateRecord", "RateView", "decode_record", "encode_record"]


@dataclass(frozen=True, slots=True)
class RateRecord:
    """What a job admits of a topic."""

    topic: str
    job: str
    """Who says so; several jobs may read a topic."""
    share: float
    """The share of its rows that a producer should send."""
    rows_per_s: float
    """The rows per second that the job has admitted lately."""
    offered_rows_per_s: float
    """The rows per second that arrived for them."""
    made_s: float
    """When, by the clock of the job: seconds since 1970."""
    expires_s: float
    """How long it holds, if nothing newer comes."""


def encode_record(record: RateRecord) -> bytes:
    """Return a record as JSON."""
    return json.dumps(asdict(record)).encode()


def decode_record(content: bytes | str) -> RateRecord | None:
    """Return the record in JSON text; ``None`` if it is none, or its numbers make no sense.

    >>> decode_record("{}") is None
    True
    """
    try:
        fields = json.loads(content)
        record = RateRecord(
            str(fields["topic"]),
            str(fields["job"]),
            *(float(fields[name]) for name in ("share", "rows_per_s", "offered_rows_per_s", "made_s", "expires_s")),
        )
    except (ValueError, KeyError, TypeError):
        return None
    return record if 0.0 < record.share <= 1.0 and record.expires_s > 0.0 else None


class RateView:
    """The records of one topic as a producer sees them: those that still hold, and the share that follows.

    A record is news if it is another one than before. A job that has ended says nothing new, and after a while what it said
    last holds no longer: then everything is sent. If several jobs read the topic, the one that takes most decides, and the gates
    of the others shed the rest.

    Examples
    --------
    >>> view = RateView("clicks")
    >>> view.take([RateRecord("clicks", "job", 0.25, 500.0, 2000.0, made_s=100.0, expires_s=30.0)], now_s=7.0, clock_s=101.0)
    >>> view.find_share(now_s=8.0), view.find_share(now_s=40.0)
    (0.25, 1.0)
    """

    def __init__(self, topic: str) -> None:
        self.topic = topic
        self._records: dict[str, tuple[RateRecord, float]] = {}

    def take(self, records: Iterable[RateRecord], now_s: float, clock_s: float) -> None:
        """Take the records that are there. ``now_s`` never jumps; ``clock_s`` is the time of day, which tells old news."""
        for record in records:
            if record.topic != self.topic:
                continue
            known = self._records.get(record.job)
            if known is None and abs(clock_s - record.made_s) > record.expires_s:
                self._records[record.job] = record, now_s - record.expires_s  # left by a job that is gone: it holds no longer
            elif known is None or record != known[0]:
                self._records[record.job] = record, now_s

    def find_share(self, now_s: float) -> float:
        """Return the share to send: everything if no record holds."""
        return max((record.share for record in self.list_valid(now_s)), default=1.0)

    def list_valid(self, now_s: float) -> list[RateRecord]:
        """Return the records that still hold."""
        return [record for record, heard_s in self._records.values() if now_s - heard_s < record.expires_s]
