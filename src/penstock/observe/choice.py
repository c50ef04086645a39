"""Which of several queries a user means."""

from __future__ import annotations

from penstock.errors import PenstockError
from penstock.observe.observatory import Observatory

__all__ = ["choose_query"]

_LISTED = 8


def choose_query(observatory: Observatory, name: str | None, *, is_needed: bool = True) -> str | None:
    """Return the number of the query that a user named; of the only one if none was named.

    Raises
    ------
    PenstockError
        If there is no such query, or several and none was named although one is needed.
    """
    names = {number: query.name for number, query in observatory.queries.items()}
    listed = ", ".join(repr(known) for known in list(names.values())[:_LISTED]) + (", ..." if len(names) > _LISTED else "")
    if name is not None:
        found = [number for number, known in names.items() if known == name]
        if not found:
            raise PenstockError(f"there is no query {name!r}; there are {listed}")
        return found[0]
    if len(names) == 1:
        return next(iter(names))
    if is_needed:
        raise PenstockError(
            f"there are {len(names)} queries: name one with --query: {listed}" if names else "there is no query yet"
        )
    return None
