"""Finds the journals in the directories that a user names: a journal, a checkpoint, journals side by side, a network's run."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError
from penstock.journal.files import FILE_NAME, OWNER
from penstock.storage import open_store

__all__ = ["JournalPlace", "find_journals", "is_run_directory", "name_apart"]

_DEPTH = 3
_MOST_JOURNALS = 500


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """Where a journal lies and how to call its query."""

    location: str
    name: str
    node: str | None = None
    """The node of a network that runs the query."""


def find_journals(directory: str | Path) -> list[JournalPlace]:
    """Return the journals in a directory, which may be a journal itself or anything that holds some.

    Raises
    ------
    PenstockError
        If there is no such directory, or no journal in it.
    """
    text = str(directory)
    if "://" in text:
        return [_find_remote(text)]
    path = Path(text.removeprefix("file:")).absolute()
    if not path.is_dir():
        raise PenstockError(f"there is no directory {directory}")
    places = list(_find_network(path)) if is_run_directory(path) else list(_walk(path, _DEPTH))
    if not places and not is_run_directory(path):
        raise PenstockError(
            f"there is no journal in {directory}: give the directory of a journal, the checkpoint of a job with a shedder, "
            "or the --dir of a network"
        )
    if len(places) > _MOST_JOURNALS:
        raise PenstockError(
            f"{directory} holds {len(places):,} journals; at most {_MOST_JOURNALS} can be shown: name a part of it"
        )
    return places


def is_run_directory(path: Path) -> bool:
    """Whether a network runs or ran there."""
    return (path / "network.json").is_file()


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


def _find_remote(location: str) -> JournalPlace:
    store, address = open_store(location, "the journal"), location.rstrip("/")
    for candidate, names in ((f"{address}/penstock", store.list_names("penstock")), (location, store.list_names())):
        if OWNER in names or any(FILE_NAME.fullmatch(name) for name in names):
            return JournalPlace(candidate, location.rstrip("/").rpartition("/")[2])
    raise PenstockError(f"there is no journal in {location}: give a journal, or the checkpoint of a job with a shedder")


def _find_network(root: Path) -> Iterator[JournalPlace]:
    for journal in sorted(root.glob("nodes/*/queries/*/penstock")):
        if _is_journal(journal):
            query, node = journal.parent.name.replace("--", "->"), journal.parents[2].name
            yield JournalPlace(str(journal), f"{node}: {query}", node)


def _walk(path: Path, depth: int) -> Iterator[JournalPlace]:
    if _is_journal(path / "penstock"):
        yield JournalPlace(str(path / "penstock"), path.name)
    elif _is_journal(path):
        name = path.parent.name if path.name == "penstock" else path.name
        yield JournalPlace(str(path), name)
    elif depth:
        try:
            folders = sorted(child for child in path.iterdir() if child.is_dir() and not child.name.startswith("."))
        except OSError:
            return
        for folder in folders:
            yield from _walk(folder, depth - 1)


def _is_journal(path: Path) -> bool:
    try:
        return (path / OWNER).is_file() or any(FILE_NAME.fullmatch(file.name) for file in path.glob("????????????*.json"))
    except OSError:
        return False
