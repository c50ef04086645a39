"""The journals that a user asked to see, each with a name of its own."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from penstock.errors import PenstockError
from penstock.journal.places import JournalPlace, find_places, is_run_directory

__all__ = ["find_journals", "name_apart"]

_MOST_JOURNALS = 500


def find_journals(directory: str | Path) -> list[JournalPlace]:
    """Return the journals in a directory, which may be a journal itself or anything that holds some.

    Raises
    ------
    PenstockError
        If there is no such directory, or no journal in it.
    """
    places = find_places(directory)
    if not places and not is_run_directory(Path(str(directory).removeprefix("file:"))):
        raise PenstockError(
            f"there is no journal in {directory}: give the directory of a journal, the checkpoint of a job with a shedder, "
            "or the --dir of a network"
        )
    if len(places) > _MOST_JOURNALS:
        raise PenstockError(
            f"{directory} holds {len(places):,} journals; at most {_MOST_JOURNALS} can be shown: name a part of it"
        )
    return places


def name_apart(places: Sequence[JournalPlace]) -> list[JournalPlace]:
    """Return the same journals, each once, with names that differ: of equal ones, the directories that tell them apart."""
    unique = list({place.location: place for place in places}.values())
    names = [place.name for place in unique]
    return [
        place if names.count(place.name) == 1 else JournalPlace(place.location, _lengthen(place), place.node) for place in unique
    ]


def _lengthen(place: JournalPlace) -> str:
    parts = [part for part in Path(place.location).parts if part not in ("penstock", "/")]
    return "/".join(parts[-3:]) or place.name
