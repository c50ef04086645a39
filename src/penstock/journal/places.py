"""Where journals lie, in the directories that a user names: a journal, a checkpoint, journals side by side, a network's run."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from penstock.errors import PenstockError
from penstock.journal.files import FILE_NAME, OWNER
from penstock.storage import open_store

__all__ = ["JournalPlace", "find_places", "is_run_directory"]

_DEPTH = 3


@dataclass(frozen=True, slots=True)
class JournalPlace:
    """Where a journal lies and how to call its query."""

    location: str
    name: str
    node: str | None = None
    """The node of a network that runs the query."""


def find_places(directory: str | Path) -> list[JournalPlace]:
    """Return the journals in a directory, which may be a journal itself or anything that holds some; perhaps none.

    Raises
    ------
    PenstockError
        If there is no such directory.
    """
    text = str(directory)
    if "://" in text:
        return list(_find_remote(text))
    path = Path(text.removeprefix("file:")).absolute()
    if not path.is_dir():
        raise PenstockError(f"there is no directory {directory}")
    return list(_find_network(path)) if is_run_directory(path) else list(_walk(path, _DEPTH))


def is_run_directory(path: Path) -> bool:
    """Whether a network runs or ran there."""
    return (path / "network.json").is_file()


def _find_remote(location: str) -> Iterator[JournalPlace]:
    store, address = open_store(location, "the journal"), location.rstrip("/")
    for candidate, names in ((f"{address}/penstock", store.list_names("penstock")), (location, store.list_names())):
        if OWNER in names or any(FILE_NAME.fullmatch(name) for name in names):
            yield JournalPlace(candidate, address.rpartition("/")[2])
            return


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
    elif depth and not (path / "offsets").is_dir():  # a checkpoint without a journal has none deeper down either
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
