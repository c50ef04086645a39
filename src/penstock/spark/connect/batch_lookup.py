"""The table of the batch that runs, as Spark's Python workers find it. What travels there needs no Penstock.

A scalar subquery calls the function that ``make_lookup`` returns before any of a batch's work begins. By then Spark has logged
the batch's offsets, so the newest entry of that log says which batch it is. The client sees it too, decides, and creates the file
of the batch (``batch_tables``); the function waits for it. If it does not come, the client may be gone, and the job must go on:
the function creates the file itself, with the table of the batch before. Whoever creates it first has decided, for replays too.

Files may lie on a mount that fails for a moment, that shows a file before it is whole, or that is full.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from penstock.spark.worker_delay import PADDING

__all__ = [
    "FIRST",
    "IMPATIENCE_S",
    "PATIENCE_S",
    "RETAINED",
    "TABLE_SCHEMA",
    "create_once",
    "file_of",
    "find_stand_in",
    "find_tables",
    "list_numbers",
    "make_lookup",
    "read_file",
]

TABLE_SCHEMA = "line bigint, latest bigint, shift int, oldest bigint, newest bigint, thresholds array<bigint>"
"""The columns of a table: see ``batch_tables.to_fields``."""
FIRST = "first.json"
"""What holds before the first decision."""
PATIENCE_S = 2.0
"""How long a batch waits for its decision."""
IMPATIENCE_S = 0.25
"""How long it waits if the batch before has waited in vain, and no client has come since."""
_INSISTENCE_S = 1.0
"""How long something is asked for that a mount does not give, or not whole."""
RETAINED = 64
"""Files of so many batches stay. The journal has what is older, for a checkpoint that is set back that far."""
_POLL_S = 0.002


def make_lookup(place: str, gate: str) -> Callable[[int], tuple[Any, ...] | None]:
    """Return the function that finds a gate's table in the file of the running batch; it returns nothing where it can't.

    ``place`` is a file that says where the offset log and the files of the batches are.
    """
    from pyspark import cloudpickle  # noqa: PLC0415 - workers read the rest of this module without it

    # The code of this module travels, and not its name: workers may not have it.
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # type: ignore[no-untyped-call]

    def look_up(_: int) -> tuple[Any, ...] | None:
        where = insist(lambda: read_file(place))
        tables = None if where is None else find_tables(where["offsets"], where["batches"])
        table = None if tables is None else tables.get(gate)
        return None if table is None else tuple(table)

    look_up.padding = PADDING  # type: ignore[attr-defined] # it travels along
    return look_up


def insist(call: Callable[[], Any]) -> Any:
    """Return what a call returns, once it does: a mount may fail for a moment. ``None`` if it goes on failing."""
    end_s = time.monotonic() + _INSISTENCE_S
    while True:
        with contextlib.suppress(OSError):
            found = call()
            if found is not None or time.monotonic() > end_s:
                return found
        if time.monotonic() > end_s:
            return None
        time.sleep(_POLL_S)


def find_tables(offsets: str, batches: str) -> dict[str, Any] | None:
    """Return the tables of the batch that was planned last, by gate."""
    planned = insist(lambda: list_numbers(offsets))
    content = wait_for(batches, max(planned)) if planned else None
    return None if content is None else dict(content["tables"])


def wait_for(batches: str, batch_id: int) -> dict[str, Any] | None:
    """Return the file of a batch, once it is there; create it if nobody does."""
    path, started_s, before = file_of(batches, batch_id), time.monotonic(), None
    while (content := read_file(path)) is None:
        before = before or read_file(file_of(batches, batch_id - 1))
        if time.monotonic() - started_s > _find_patience(batches, before):
            return _stand_in(batches, batch_id)
        time.sleep(_POLL_S)
    return content


def _find_patience(batches: str, before: dict[str, Any] | None) -> float:
    """Return how long a batch waits: not for long where the one before had to stand in, and no client has come since."""
    if before is None or not before["is_stand_in"]:
        return PATIENCE_S
    client = (read_file(f"{batches}/{FIRST}") or {}).get("client")
    return IMPATIENCE_S if client == before.get("client") else PATIENCE_S


def _stand_in(batches: str, batch_id: int) -> dict[str, Any] | None:
    """Create the file of a batch that nobody has decided about, and return it, or what somebody else was quicker to create."""
    stand_in, path = find_stand_in(batches, batch_id), file_of(batches, batch_id)
    if stand_in is None:
        return None
    try:
        if not create_once(path, stand_in):
            content: dict[str, Any] | None = insist(lambda: read_file(path))
            if content is not None:
                return content
            replace(path, stand_in)  # whoever began to write it has died
    except OSError:
        return read_file(path) or stand_in  # a client that finds no file knows that this is what held
    with contextlib.suppress(OSError):  # the client, which does that, may be gone for long
        Path(file_of(batches, batch_id - RETAINED - 1)).unlink(missing_ok=True)
    return read_file(path) or stand_in


def find_stand_in(batches: str, batch_id: int) -> dict[str, Any] | None:
    """Return what a batch runs with that nobody has decided about: the table of the one before, as far as files tell.

    One that was judged by slots says nothing about other batches.
    """
    first: dict[str, Any] | None = insist(lambda: read_file(f"{batches}/{FIRST}"))
    told = {"is_stand_in": True, "client": None if first is None else first.get("client")}
    for earlier in sorted(insist(lambda: list_numbers(batches)) or (), reverse=True):
        content = read_file(file_of(batches, earlier)) if earlier < batch_id else None
        if content is not None and content["decided_for"] is not None:
            return {**content, **told}
    return None if first is None else {**first, **told}


def file_of(batches: str, batch_id: int) -> str:
    """Return the path of a batch's file."""
    return f"{batches}/{batch_id}.json"


def list_numbers(directory: str) -> list[int]:
    """Return the numbers that files in a directory are named by."""
    names = [path.name.removesuffix(".json") for path in Path(directory).iterdir()]
    return [int(name) for name in names if name.isdigit()]


def read_file(path: str) -> dict[str, Any] | None:
    """Return what a file has; ``None`` while it is not there, or not whole."""
    try:
        content: dict[str, Any] = json.loads(Path(path).read_bytes())
    except (OSError, ValueError):
        return None
    return content


def create_once(path: str, content: dict[str, Any], *, durable: bool = True) -> bool:
    """Create a file, unless it is there already: of several that create it at once, one succeeds. Return whether it was this one.

    It appears whole where the filesystem has hard links. Elsewhere, a file that is not whole yet is not read.
    """
    text, target = _encode(content), Path(path)
    temporary = _name_aside(target)
    try:
        _write_new(temporary, text, durable=durable)
        try:
            os.link(temporary, target)
        except FileExistsError:
            return False
        except OSError:  # no links here
            try:
                _write_new(target, text, durable=durable)
            except FileExistsError:
                return False
    finally:
        with contextlib.suppress(OSError):
            temporary.unlink()
    return True


def replace(path: str, content: dict[str, Any]) -> None:
    """Put a file in the place of another."""
    temporary = _name_aside(Path(path))
    _write_new(temporary, _encode(content), durable=True)
    temporary.replace(path)


def _encode(content: dict[str, Any]) -> str:
    return json.dumps(content, separators=(",", ":"))


def _name_aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.{uuid.uuid4().hex}.tmp")


def _write_new(path: Path, text: str, *, durable: bool) -> None:
    """Write a file that must not be there yet, or leave none."""
    stream = path.open("x", encoding="utf-8")
    try:
        with stream:
            stream.write(text)
            if durable:
                stream.flush()
                with contextlib.suppress(OSError):  # where it can't be asked for, closing must do
                    os.fsync(stream.fileno())
    except OSError:
        with contextlib.suppress(OSError):
            path.unlink()
        raise
