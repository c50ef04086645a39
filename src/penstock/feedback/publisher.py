"""Publishes what a job admits of each topic: reads the job's journal, and writes to a compacted topic and an HTTP endpoint."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

from penstock.errors import PenstockError
from penstock.feedback.admitted_rate import RATES_TOPIC
from penstock.feedback.rate_record import RateRecord, encode_record
from penstock.feedback.rate_server import RateServer
from penstock.feedback.source_share import SourceShare
from penstock.journal import JournalState, read_journal
from penstock.kafka.topic_admin import TopicAdmin
from penstock.kafka.topic_log import COMPACTED, KafkaTopicLog

__all__ = ["Feedback", "GateFeedback"]

log = logging.getLogger("penstock")


class GateFeedback:
    """What one gate of a job admits of its topic, batch by batch.

    >>> gate = GateFeedback("clicks", "job", SourceShare(), expires_s=30.0)
    >>> gate.update({0: (1000, 475)}, now_s=10.0).share
    0.5
    """

    def __init__(self, topic: str, job: str, source: SourceShare, expires_s: float, last_batch: int = -1) -> None:
        self._topic, self._job, self._source, self._expires_s = topic, job, source, expires_s
        self._last_batch = last_batch
        self._last_s: float | None = None
        self._rates = (0.0, 0.0)

    def update(self, batches: Mapping[int, tuple[int, int]], now_s: float) -> RateRecord:
        """Take (offered, kept) of the batches that the journal has, and return what to say."""
        fresh = {number: counts for number, counts in batches.items() if number > self._last_batch}
        offered, kept = (sum(counts[index] for counts in fresh.values()) for index in (0, 1))
        if fresh:
            elapsed_s = now_s - self._last_s if self._last_s is not None else 0.0
            if elapsed_s > 0.0:
                self._rates = (kept / elapsed_s, offered / elapsed_s)
            self._last_batch, self._last_s = max(fresh), now_s
        share = self._source.update(offered, kept, now_s)
        return RateRecord(self._topic, self._job, share, *self._rates, now_s, self._expires_s)


class Feedback:
    """Tells producers how much of their rows a job admits.

    It reads the job's journal once a second, in a thread, and nothing else of the job. It may run beside the job or in a process
    of its own (``penstock feedback``). The gate stays in charge: it sheds what producers send too much.

    Parameters
    ----------
    checkpoint
        The job's checkpoint, or its journal. It need not exist yet.
    topics
        The topic that each gate reads; a gate that is missing reads the topic of its name.
    http
        Where the endpoint listens; ``None`` for none. Port 0 takes any that is free.
    servers
        The brokers of the compacted topic; ``None`` for none.
    rates_topic
        That topic; created if there is none.
    expires_s
        How long what is said holds if nothing newer comes.
    settle_s
        How long it takes until a change at the producers is seen at the gate: a few delays of the job.
    options
        More settings of confluent-kafka.

    Examples
    --------
    ::

        with Feedback("/data/c", http="127.0.0.1:8077") as feedback:
            query.awaitTermination()
    """

    def __init__(
        self,
        checkpoint: str | Path,
        topics: Mapping[str, str] | None = None,
        *,
        http: str | None = "127.0.0.1:8077",
        servers: str | None = None,
        rates_topic: str = RATES_TOPIC,
        expires_s: float = 30.0,
        settle_s: float = 10.0,
        refresh_s: float = 1.0,
        options: Mapping[str, object] | None = None,
    ) -> None:
        if not expires_s > refresh_s > 0:
            raise PenstockError(f"expires_s must be greater than refresh_s, got {expires_s!r} and {refresh_s!r}")
        if http is None and servers is None:
            raise PenstockError("give http= or servers=: where to publish")
        SourceShare(settle_s)  # says what is wrong with it
        self._journals = (f"{checkpoint}/penstock", str(checkpoint))
        self._topics = dict(topics or {})
        self._expires_s, self._settle_s, self._refresh_s = expires_s, settle_s, refresh_s
        self._http, self._servers, self._rates_topic, self._options = http, servers, rates_topic, options
        self._gates: dict[str, GateFeedback] = {}
        self._records: dict[str, RateRecord] = {}
        self._server: RateServer | None = None
        self._log: KafkaTopicLog | None = None
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._notes: set[str] = set()

    @property
    def records(self) -> list[RateRecord]:
        """What is said at the moment, one record for each gate."""
        return list(self._records.values())

    @property
    def url(self) -> str | None:
        """The address of the endpoint, as ``AdmittedRate.from_http`` takes it."""
        return None if self._server is None else self._server.url

    def start(self) -> Self:
        """Begin to publish.

        Raises
        ------
        PenstockError
            If the endpoint can't listen.
        """
        if self._thread is None:
            self._server = None if self._http is None else RateServer(self._http, lambda: self.records)
            self._thread = threading.Thread(target=self._run, name="penstock-feedback", daemon=True)
            self._thread.start()
        return self

    def close(self) -> None:
        """Stop publishing. What was said last expires."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(30.0)
        if self._server is not None:
            self._server.close()
            self._server = None
        if self._log is not None:
            self._log.close()
            self._log = None

    def _run(self) -> None:
        while not self._stop.is_set():
            self._guard(self.update)
            self._stop.wait(self._refresh_s)

    def _guard(self, action: Callable[[], None]) -> None:
        """Note what goes wrong, once, and go on: feedback must not end a job."""
        try:
            action()
        except Exception as error:  # a broker that is away, a journal that is being written
            note = f"feedback: {error}"
            if note not in self._notes:
                self._notes.add(note)
                log.warning("%s", note)

    def update(self) -> None:
        """Read the journal and publish; the thread does that by itself."""
        state = next((state for state in map(_read, self._journals) if state is not None and state.owner), None)
        if state is None:  # the job has not begun
            return
        for gate in state.totals():
            self._records[gate] = self._find_gate(gate, state).update(_list_counts(state, gate), time.time())
        if self._servers is not None:
            self._publish()

    def _find_gate(self, gate: str, state: JournalState) -> GateFeedback:
        if gate not in self._gates:
            job, source = f"{state.owner.get('job')}/{gate}", SourceShare(self._settle_s)
            before = max(state.batches, default=0) - 1  # earlier batches are no news
            self._gates[gate] = GateFeedback(self._topics.get(gate, gate), job, source, self._expires_s, before)
        return self._gates[gate]

    def _publish(self) -> None:
        if self._log is None:
            admin = TopicAdmin(str(self._servers), self._options)
            if self._rates_topic not in admin.list_topics():
                admin.create(self._rates_topic, 1, COMPACTED)
            self._log = KafkaTopicLog(str(self._servers), self._rates_topic, self._options)
        for record in self._records.values():
            self._log.append(f"{record.topic} {record.job}", encode_record(record))

    def __enter__(self) -> Self:
        """Begin to publish."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop publishing."""
        self.close()


def _read(location: str) -> JournalState | None:
    try:
        return read_journal(location)
    except (OSError, PenstockError):
        return None


def _list_counts(state: JournalState, gate: str) -> dict[int, tuple[int, int]]:
    return {number: record.gates[gate] for number, record in state.batches.items() if gate in record.gates}
