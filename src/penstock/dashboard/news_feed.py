"""One reader for all pages: it polls the journals, and every page gets the same bytes."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import math
from collections.abc import AsyncIterator
from typing import Any

from penstock.observe.observatory import Observatory
from penstock.observe.query_series import QuerySeries

__all__ = ["Feed", "encode_event"]

log = logging.getLogger("penstock")

_POLL_S = 0.2
_IDLE_POLL_S = 1.0
_PING_S = 5.0
_QUEUE = 64
_OVERVIEW_S = 1.0
_REPEATED = 3
"""Batches before the new ones that are sent again: a later line of a journal may complete them."""
_MOST_NEW = 200
_DECISIONS = 8


def encode_event(name: str, data: Any) -> bytes:
    r"""Return a server-sent event.

    >>> encode_event("query", {"a": 1})
    b'event: query\ndata: {"a":1}\n\n'
    """
    return f"event: {name}\ndata: {json.dumps(data, separators=(',', ':'), allow_nan=False)}\n\n".encode()


class Feed:
    """Tells pages what is new. However many there are, journals are read once and events made once.

    Parameters
    ----------
    observatory
        What is watched.
    """

    def __init__(self, observatory: Observatory) -> None:
        self._observatory = observatory
        self._pages: dict[asyncio.Queue[bytes | None], str] = {}
        self._sent: dict[str, float] = {}  # by query, when the last batch ended that pages know
        self._overview_at = -math.inf
        self._has_news = False
        self._woken: asyncio.Event | None = None

    def __len__(self) -> int:
        return len(self._pages)

    async def run(self) -> None:
        """Poll until cancelled."""
        self._woken = asyncio.Event()
        while True:
            try:
                changed, has_more = await asyncio.to_thread(self._observatory.poll)
                await self._publish(changed, has_more)
            except Exception:  # a page that shows an old state is better than none
                log.exception("the dashboard could not read what is new")
            self._woken.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._woken.wait(), _POLL_S if self._pages else _IDLE_POLL_S)
            if self._pages:
                await asyncio.sleep(0.01)

    async def _publish(self, changed: set[str], has_more: bool) -> None:
        self._has_news |= bool(changed) or has_more
        wanted = changed & set(self._pages.values())
        for number in wanted:
            event = encode_event("query", await asyncio.to_thread(self._describe_news, number))
            self._send(event, number)
        for number in changed - wanted:
            self._sent.pop(number, None)
        now = asyncio.get_running_loop().time()
        if self._has_news and self._pages and now - self._overview_at >= _OVERVIEW_S:
            self._has_news, self._overview_at = False, now
            self._send(encode_event("overview", await asyncio.to_thread(self._observatory.overview)), None)

    def _describe_news(self, number: str) -> dict[str, Any]:
        """Return how a query does now, with its latest batches one by one."""
        detail = self._observatory.detail(number)
        series = self._observatory.queries[number].tail.series
        since_s = self._find_start(series, self._sent.get(number))
        last_s = detail["summary"]["last_s"]
        if last_s is not None:
            self._sent[number] = last_s
        points = self._observatory.curves(number, since_s, points=_MOST_NEW)
        return detail | {"decisions": detail["decisions"][:_DECISIONS], "points": points}

    @staticmethod
    def _find_start(series: QuerySeries, sent_s: float | None) -> float:
        """Return the end of the first batch to send."""
        ends = series.column("end_s")[-_MOST_NEW:]
        ends = ends[ends == ends]  # noqa: PLR0124 - without nan
        if not len(ends):
            return -math.inf
        new = int((ends > sent_s).sum()) if sent_s is not None else 1
        return float(ends[max(0, len(ends) - new - _REPEATED)])

    def _send(self, event: bytes, number: str | None) -> None:
        for queue, wanted in list(self._pages.items()):
            if number is not None and wanted != number:
                continue
            try:
                queue.put_nowait(event)
            except asyncio.QueueFull:  # a page that does not keep up asks again for all of it
                self._drop(queue)

    def close(self) -> None:
        """Let all pages go, so that a server can end; they ask again later."""
        for queue in list(self._pages):
            self._drop(queue)

    def _drop(self, queue: asyncio.Queue[bytes | None]) -> None:
        del self._pages[queue]
        while not queue.empty():
            queue.get_nowait()
        queue.put_nowait(None)

    async def follow(self, number: str) -> AsyncIterator[bytes]:
        """Yield what is new for a page that shows a query."""
        queue: asyncio.Queue[bytes | None] = asyncio.Queue(_QUEUE)
        self._pages[queue] = number
        if self._woken is not None:
            self._woken.set()
        try:
            yield b"retry: 1000\n\n"
            while True:
                try:
                    event = await asyncio.wait_for(queue.get(), _PING_S)
                except TimeoutError:
                    event = b": still here\n\n"
                if event is None:
                    return
                yield event
        finally:
            self._pages.pop(queue, None)
