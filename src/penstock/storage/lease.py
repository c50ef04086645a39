"""A directory kept for one job where there are no locks: a lease that expires unless it is renewed.

A lease is a file ``.lease/<number>.json``, created if absent. Who creates the next number has the directory, and of several that
try only one can. The number is the lease's fence: a holder that finds a higher one has lost. A holder that stalls for longer than
its lease may find out late; the journal's own numbering, which is created if absent as well, keeps it from writing then.

To renew it is to create ``.lease/<number>-<beat>.json`` and to remove the beat before. No file is ever replaced: on many
filesystems that is to delete and to rename, and whoever looked in between would find the lease of a live job gone. Others leave
the old file as it is and say nothing.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import socket
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from penstock.storage.store import Store

from penstock.storage.store import HeldError

__all__ = ["LEASE_S", "Lease", "LeaseLostError"]

log = logging.getLogger("penstock")

LEASE_S = 20.0
"""How long a lease holds after it was renewed, in seconds."""
_RENEWALS = 4
"""Renewals within that time."""
_SKEW_S = 60.0
"""Clocks of two machines may disagree by as much; within it, only watching tells whether a lease is renewed."""
_FOLDER = ".lease"
_NAME = re.compile(r"(\d{12})(?:-(\d{9}))?\.json")


class LeaseLostError(OSError):
    """Another job has taken the directory over."""


class Lease:
    """The hold on a directory of one store.

    A lease whose holder is gone is taken over: at once if its process ran on this machine and is dead, if it was released, or if
    it expired long ago; otherwise after it was not renewed for as long as a lease holds.

    Parameters
    ----------
    store
        Where the directory is.
    lease_s
        How long a lease holds.
    now_s, tick_s, sleep
        The clock, a clock that is never set, and how to wait.
    """

    def __init__(
        self,
        store: Store,
        lease_s: float = LEASE_S,
        *,
        now_s: Callable[[], float] = time.time,
        tick_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._directory = store.location
        self._store, self.lease_s = store.below(_FOLDER), lease_s
        self._now_s, self._tick_s, self._sleep = now_s, tick_s, sleep
        self._holder = uuid.uuid4().hex
        self._number: int | None = None
        self._beat = 0
        self._renewed_s = -float("inf")
        self._changing = threading.Lock()  # a renewal must not come after the release

    @property
    def number(self) -> int | None:
        """The fence; ``None`` if the lease is not held."""
        return self._number

    @property
    def is_fresh(self) -> bool:
        """Whether the lease is held and nobody may have taken it yet."""
        return self._number is not None and self._tick_s() - self._renewed_s < self.lease_s

    @property
    def is_due(self) -> bool:
        """Whether it is time to renew it."""
        return self._number is not None and self._tick_s() - self._renewed_s >= self.lease_s / _RENEWALS

    def acquire(self) -> None:
        """Take the directory.

        Raises
        ------
        HeldError
            If a job has it that renews its lease.
        """
        self._store.make()
        marks = self._list_marks()
        last = marks[-1][0] if marks else 0
        if marks:
            self._outwait(last)
        started_s = self._tick_s()
        try:
            self._store.create(_name(last + 1), self._describe())
        except FileExistsError:
            raise HeldError("another job has just taken it") from None
        self._number, self._beat, self._renewed_s = last + 1, 0, started_s
        with contextlib.suppress(OSError):  # they say nothing any more
            for mark in self._list_marks():
                if mark[0] <= last:
                    self._store.delete(_name(*mark))

    def renew(self) -> None:
        """Hold it for longer; also after it expired, if nobody has taken it since.

        Raises
        ------
        LeaseLostError
            If somebody has.
        """
        with self._changing:
            if self._number is None:
                return
            started_s = self._tick_s()
            marks = self._list_marks()
            if marks and marks[-1][0] > self._number:
                self._number = None
                raise LeaseLostError(f"another job has taken {self._directory} over")
            self._beat += 1  # also if this fails: it may have arrived all the same
            self._store.create(_name(self._number, self._beat), self._describe())
            self._renewed_s = started_s
            with contextlib.suppress(OSError):  # it is renewed
                for number, beat in marks:
                    if number == self._number and beat:
                        self._store.delete(_name(number, beat))

    def release(self) -> None:
        """Give it back, so that the next job need not wait."""
        with self._changing:
            number, self._number = self._number, None
            if number is None:
                return
            try:
                self._store.create(_name(number, self._beat + 1), self._describe(is_released=True))
            except OSError:
                log.debug("the lease on %s could not be released: it expires", self._directory, exc_info=True)

    def _outwait(self, number: int) -> None:
        """Return once nobody can have the lease of this number any more; raise if somebody has."""
        first = self._look(number)
        if first is None or first.get("released") or _is_dead_here(first):
            return
        if "expires_s" in first and self._now_s() > float(first["expires_s"]) + _SKEW_S:
            return
        held_by = f"a driver on {first.get('host', 'another machine')} (process {first.get('process', 'unknown')})"
        log.warning("%s is held by %s, which may be dead: waiting up to %g s", self._directory, held_by, self.lease_s)
        end_s = self._tick_s() + self.lease_s
        while self._tick_s() < end_s:
            self._sleep(self.lease_s / (4 * _RENEWALS))
            now = self._look(number)
            if now is None or now.get("released"):
                return
            if (now["beat"], now.get("stamp")) != (first["beat"], first.get("stamp")):
                raise HeldError(f"{held_by} holds it and is alive")

    def _look(self, number: int) -> dict[str, Any] | None:
        """Return which beat of a lease is the last, with what it says if it can be read; ``None`` if the lease is gone."""
        marks = [mark for mark in self._list_marks() if mark[0] == number]
        if not marks:
            return None
        try:
            content = json.loads(self._store.read(_name(*marks[-1])))
        except (
            FileNotFoundError,
            ValueError,
        ):  # replaced by the next one meanwhile; or torn, as its holder died or writes it now
            content = None
        return (content if isinstance(content, dict) else {}) | {"beat": marks[-1][1]}

    def _list_marks(self) -> list[tuple[int, int]]:
        """Return number and beat of each file, in order; a lease that was just taken has the beat 0."""
        matches = [match for name in self._store.list_names() if (match := _NAME.fullmatch(name))]
        return sorted((int(match[1]), int(match[2] or 0)) for match in matches)

    def _describe(self, *, is_released: bool = False) -> bytes:
        content = {
            "holder": self._holder,
            "host": socket.gethostname(),
            "machine": _machine(),
            "process": os.getpid(),
            "started": _start_of(os.getpid()),
            "expires_s": self._now_s() + self.lease_s,
            "stamp": uuid.uuid4().hex,
            "released": is_released,
        }
        return json.dumps(content).encode()


def _name(number: int, beat: int = 0) -> str:
    return f"{number:012d}-{beat:09d}.json" if beat else f"{number:012d}.json"


def _is_dead_here(lease: dict[str, Any]) -> bool:
    """Whether the holder was a process of this machine, in this container, and is no more."""
    machine, process = lease.get("machine"), lease.get("process")
    if machine is None or machine != _machine() or not isinstance(process, int):
        return False
    started = _start_of(process)
    return started is None or started != lease.get("started")


def _machine() -> str | None:
    """Return what tells this machine, since it was booted, and its table of processes from all others; ``None`` if unknown."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot} {Path('/proc/self/ns/pid').readlink()}"
    except OSError:
        return None


def _start_of(process: int) -> str | None:
    """Return when a process started, in the kernel's own count; ``None`` if there is no such process."""
    try:
        fields = Path(f"/proc/{process}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] == "Z" else fields[19]
