"""The dashboard as an ASGI application: a page, its files, and what journals say as JSON and as events."""

from __future__ import annotations

import asyncio
import contextlib
import json
import math
from collections.abc import AsyncIterator, Sequence
from typing import TYPE_CHECKING, Any

from starlette.applications import Starlette
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from penstock.dashboard.access import Guard
from penstock.dashboard.html_page import CONTENT_TYPES, SCRIPTS, STYLES, read_static, render_live_page
from penstock.dashboard.news_feed import Feed
from penstock.observe.observatory import Observatory

if TYPE_CHECKING:
    from starlette.requests import Request

__all__ = ["build_app"]

_MOST_POINTS = 5_000


def build_app(
    observatory: Observatory,
    *,
    token: str | None = None,
    is_local: bool = True,
    names: Sequence[str] = (),
    feed: Feed | None = None,
) -> Guard:
    """Return the application for what an observatory watches.

    Parameters
    ----------
    observatory
        What is watched.
    token
        What a request must know; ``None`` on loopback.
    is_local
        Whether it is served on loopback only.
    names
        More host names under which it may be reached.
    feed
        What tells pages of news, for a caller that wants to close it.
    """
    feed = Feed(observatory) if feed is None else feed

    @contextlib.asynccontextmanager
    async def live(_: Starlette) -> AsyncIterator[None]:
        polling = asyncio.create_task(feed.run())
        try:
            yield
        finally:
            polling.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await polling

    pages = _Pages(observatory, feed)
    routes = [
        Route("/", pages.show_page),
        Route("/static/{name}", pages.show_file),
        Route("/api/overview", pages.show_overview),
        Route("/api/queries/{number}", pages.show_query),
        Route("/api/queries/{number}/curves", pages.show_curves),
        Route("/api/events", pages.follow),
    ]
    return Guard(Starlette(routes=routes, lifespan=live), token=token, is_local=is_local, names=names)


class _Pages:
    """The answers. Queries are asked for by a number that the observatory knows, so no address of a file comes from outside."""

    def __init__(self, observatory: Observatory, feed: Feed) -> None:
        self._observatory, self._feed = observatory, feed
        self._files = {name: read_static(name) for name in (*STYLES, *SCRIPTS)}

    async def show_page(self, _: Request) -> Response:
        return Response(render_live_page(), media_type="text/html")

    async def show_file(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in self._files:
            return _refuse(404, "there is no such file")
        return Response(self._files[name], media_type=CONTENT_TYPES[name[name.rindex(".") :]])

    async def show_overview(self, _: Request) -> Response:
        return _answer(await asyncio.to_thread(self._observatory.overview))

    async def show_query(self, request: Request) -> Response:
        number = request.path_params["number"]
        if number not in self._observatory.queries:
            return _refuse(404, "there is no such query")
        return _answer(await asyncio.to_thread(self._observatory.detail, number))

    async def show_curves(self, request: Request) -> Response:
        number = request.path_params["number"]
        if number not in self._observatory.queries:
            return _refuse(404, "there is no such query")
        try:
            since_s, until_s = (_read_number(request, name, edge) for name, edge in (("since", -math.inf), ("until", math.inf)))
            points = int(_read_number(request, "points", 600))
        except ValueError as error:
            return _refuse(400, str(error))
        points = min(max(10, points), _MOST_POINTS)
        return _answer(await asyncio.to_thread(self._observatory.curves, number, since_s, until_s, points))

    async def follow(self, request: Request) -> Response:
        number = request.query_params.get("query", "")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._feed.follow(number), media_type="text/event-stream", headers=headers)


def _read_number(request: Request, name: str, default: float) -> float:
    text = request.query_params.get(name)
    if text is None:
        return default
    try:
        number = float(text)
    except ValueError:
        number = math.nan
    if not math.isfinite(number):
        raise ValueError(f"{name} must be a number, got {text[:40]!r}")
    return number


def _answer(data: Any) -> Response:
    return Response(json.dumps(data, separators=(",", ":"), allow_nan=False), media_type="application/json")


def _refuse(status: int, text: str) -> Response:
    return Response(json.dumps({"error": text}), status, media_type="application/json")
