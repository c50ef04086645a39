"""The files of a journal: numbered, each written as a whole and checked by a checksum."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import xxhash

from penstock.journal.state import JournalState
from penstock.storage import Store

__all__ = ["FILE_NAME", "FORMAT", "OWNER", "check_seal", "list_numbered", "number_name", "read_state", "seal", "unseal"]

FORMAT = "penstock-journal-1"
OWNER = "owner.json"
FILE_NAME = re.compile(r"(\d{12})(\.compact)?\.json")
_OTHER_FILES = {OWNER, "lock"}


def seal(lines: Iterable[Mapping[str, Any]]) -> bytes:
    """Return the content of a file: a header with a checksum, then one JSON object per line."""
    body = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines).encode()
    return f"{FORMAT} {xxhash.xxh64_hexdigest(body)}\n".encode() + body


def unseal(content: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the lines of a file.

    Raises
    ------
    ValueError
        If the file is incomplete, or not one of a journal.
    """
    for line in check_seal(content):
        yield json.loads(line)


def check_seal(content: bytes) -> list[bytes]:
    """Return the lines of a file as they are, for a reader that needs few of them.

    Raises
    ------
    ValueError
        If the file is incomplete, or not one of a journal.
    """
    header, _, body = content.partition(b"\n")
    fields = header.decode(errors="replace").split()
    if len(fields) != 2 or fields[0] != FORMAT:
        raise ValueError(f"it does not begin with {FORMAT}")
    if fields[1] != xxhash.xxh64_hexdigest(body):
        raise ValueError("its checksum does not match")
    return body.splitlines()


def number_name(number: int, *, is_compact: bool = False) -> str:
    """Return the name of a numbered file.

    >>> number_name(7), number_name(8, is_compact=True)
    ('000000000007.json', '000000000008.compact.json')
    """
    return f"{number:012d}{'.compact' if is_compact else ''}.json"


def list_numbered(store: Store) -> list[str]:
    """Return the names of a journal's numbered files."""
    return [name for name in store.list_names() if FILE_NAME.fullmatch(name)]


def read_state(store: Store) -> JournalState:
    """Return what the files of a journal say; damaged ones are named in ``damage`` and ignored."""
    state = JournalState()
    names = sorted(store.list_names())
    damage: list[str] = []
    if OWNER in names:
        try:
            state.owner = json.loads(store.read(OWNER))
        except (ValueError, OSError) as error:
            damage.append(f"journal file {store.location}/{OWNER} is damaged and ignored: {error}")
    numbered = {int(match.group(1)): match.string for name in names if (match := FILE_NAME.fullmatch(name))}
    # Files before the newest compacted one are left over from a crash during compaction.
    compact = max((number for number, name in numbered.items() if ".compact" in name and _is_intact(store, name)), default=0)
    for name, content in store.read_all(name for number, name in sorted(numbered.items()) if number >= compact):
        if isinstance(content, FileNotFoundError):
            continue  # compacted away while a viewer was reading
        if isinstance(content, OSError):
            raise content
        try:
            for line in unseal(content):
                state.add_line(line)
        except (ValueError, KeyError, TypeError) as error:
            damage.append(f"journal file {store.location}/{name} is torn or damaged and ignored: {error}")
    foreign = [name for name in names if not FILE_NAME.fullmatch(name) and name not in _OTHER_FILES and not name.startswith(".")]
    damage += [f"journal file {store.location}/{name} is not Penstock's and is ignored" for name in foreign]
    state.damage = damage
    state.next_number = max(numbered, default=-1) + 1
    return state


def _is_intact(store: Store, name: str) -> bool:
    try:
        return any(True for _ in unseal(store.read(name)))
    except ValueError:
        return False
    except FileNotFoundError:
        return False
