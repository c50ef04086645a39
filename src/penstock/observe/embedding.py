"""Everything that a page shows of some queries, in one piece: for a report that needs no server."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from penstock.observe.observatory import Observatory

__all__ = ["embed", "embed_one"]

_POINTS = 2_000


def embed(observatory: Observatory, points: int = _POINTS) -> dict[str, Any]:
    """Return what a page needs, as plain JSON values: an overview, and details and curves by query."""
    overview = observatory.overview()
    numbers = [query["id"] for query in overview["queries"]]
    return {
        "overview": overview,
        "details": {number: observatory.detail(number) for number in numbers},
        "curves": {number: observatory.curves(number, points=points) for number in numbers},
    }


def embed_one(journal: str, name: str, number: str) -> Mapping[str, Any]:
    """Return the same of one journal, under a name and a number of the caller's."""
    data = embed(Observatory([journal]))
    (outline,) = data["overview"]["queries"]
    old = outline["id"]
    return {
        "outline": {**outline, "id": number, "name": name},
        "detail": {**data["details"][old], "id": number, "name": name, "location": "", "state": "ended"},
        "curves": data["curves"][old],
    }
