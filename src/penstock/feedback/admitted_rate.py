"""The producer's side: which rows to send, and with which weight."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.parse
import urllib.request
from collections.abc import Callable, Iterable, Mapping
from types import TracebackType
from typing import Self

import xxhash

from penstock.errors import PenstockError
from penstock.feedback.rate_record import RateRecord, RateView, decode_record
from penstock.kafka.topic_log import KafkaTopicLog

__all__ = ["AdmittedRate", "RATES_TOPIC", "WEIGHT_HEADER", "choose_weight"]

WEIGHT_HEADER = "penstock-weight"
RATES_TOPIC = "penstock-rates"
_TIMEOUT_S = 2.0
_SEED = 0x5EED_50CE


def choose_weight(identity: bytes, share: float, topic: str = "") -> float | None:
    """Return the weight of a row that is sent, 1 / share; ``None`` for a row that is left out.

    A hash of the row decides, so a row that is sent again after a failure has the same fate at the same share, and a row that
    is sent at some share is sent at every greater one.

    >>> choose_weight(b"row", 1.0)
    1.0
    >>> sum(choose_weight(str(i).encode(), 0.25) or 0.0 for i in range(10_000))
    9996.0
    """
    if share >= 1.0:
        return 1.0
    draw = xxhash.xxh64_intdigest(topic.encode() + b"\0" + identity, seed=_SEED) / 2.0**64
    return 1.0 / share if draw < share else None


class AdmittedRate:
    """Samples the rows of a producer as the job that reads them asks for.

    It asks for news every second, in the background. Without news for a while (30 s, unless the job says otherwise) all rows are
    sent: the job's gate sheds what is too much.

    Parameters
    ----------
    topic
        The topic that the producer writes to.
    fetch
        Returns the records that are there; see ``from_http`` and ``from_kafka``.
    refresh_s
        How often to ask.

    Examples
    --------
    ::

        with AdmittedRate.from_http("http://127.0.0.1:8077", "clicks") as rate:
            for number, row in rows:
                weight = rate.sample(number)
                if weight is not None:
                    producer.produce("clicks", row, headers=rate.headers(weight))
    """

    def __init__(self, topic: str, fetch: Callable[[], Iterable[RateRecord]], refresh_s: float = 1.0) -> None:
        if not refresh_s > 0:
            raise PenstockError(f"refresh_s must be positive, got {refresh_s!r}")
        self._topic, self._fetch, self._refresh_s = topic, fetch, refresh_s
        self._view = RateView(topic)
        self._rows = 0
        self._stop = threading.Event()
        self._thread: threading.Thread | None = None
        self._at_end: Callable[[], None] = lambda: None
        self.trouble: str | None = None
        """Why the last question had no answer; ``None`` if it had one."""

    @classmethod
    def from_http(cls, url: str, topic: str, refresh_s: float = 1.0) -> Self:
        """Ask the endpoint of a job, such as ``http://127.0.0.1:8077``."""
        if not url.startswith(("http://", "https://")):
            raise PenstockError(f"the address of the rates must begin with http://, got {url!r}")
        address = f"{url.rstrip('/')}/rates/{urllib.parse.quote(topic, safe='')}"

        def fetch() -> list[RateRecord]:
            with urllib.request.urlopen(address, timeout=_TIMEOUT_S) as answer:  # noqa: S310 - checked above
                content = json.loads(answer.read())
            return [record for item in content if (record := decode_record(json.dumps(item))) is not None]

        return cls(topic, fetch, refresh_s)

    @classmethod
    def from_kafka(
        cls,
        servers: str,
        topic: str,
        *,
        rates_topic: str = RATES_TOPIC,
        options: Mapping[str, object] | None = None,
        refresh_s: float = 1.0,
    ) -> Self:
        """Read the compacted topic to which jobs write."""
        log = KafkaTopicLog(servers, rates_topic, options)

        def fetch() -> list[RateRecord]:
            contents = (value for _, value in log.read() if value is not None)
            return [record for content in contents if (record := decode_record(content)) is not None]

        rate = cls(topic, fetch, refresh_s)
        rate._at_end = log.close
        return rate

    @property
    def share(self) -> float:
        """The share of its rows that the producer should send now."""
        return self._view.find_share(time.monotonic())

    def sample(self, identity: bytes | str | int | None = None) -> float | None:
        """Return the weight of a row that is to be sent, ``None`` for one that is to be left out.

        ``identity`` tells rows apart. Rows of one identity share their fate, so a user's id keeps or drops whole users. Without
        one, rows are numbered.
        """
        if identity is None:
            identity, self._rows = self._rows, self._rows + 1
        key = identity if isinstance(identity, bytes) else str(identity).encode()
        return choose_weight(key, self.share, self._topic)

    @staticmethod
    def headers(weight: float) -> list[tuple[str, bytes]]:
        """Return the headers of a row with this weight: none for a row that stands for itself.

        >>> AdmittedRate.headers(4.0), AdmittedRate.headers(1.0)
        ([('penstock-weight', b'4.0')], [])
        """
        return [] if weight == 1.0 else [(WEIGHT_HEADER, repr(float(weight)).encode())]

    def refresh(self) -> None:
        """Ask for news now; the thread does that by itself."""
        try:
            records = list(self._fetch())
        except (OSError, ValueError, urllib.error.URLError) as error:
            self.trouble = str(error)
            return
        self.trouble = None
        self._view.take(records, time.monotonic(), time.time())

    def _run(self) -> None:
        while not self._stop.is_set():
            self.refresh()
            self._stop.wait(self._refresh_s)

    def start(self) -> Self:
        """Begin to ask."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="penstock-rate", daemon=True)
            self._thread.start()
        return self

    def close(self) -> None:
        """Stop asking."""
        self._stop.set()
        if self._thread is not None:
            self._thread.join(2 * _TIMEOUT_S)
        self._at_end()

    def __enter__(self) -> Self:
        """Begin to ask."""
        return self.start()

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """Stop asking."""
        self.close()
