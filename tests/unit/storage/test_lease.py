"""Leases: one holder, taken over only from the dead, and found out where it was lost."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest

from penstock.storage import HeldError, Lease, LeaseLostError
from penstock.testing.stores import MemoryStore


class Clock:
    """Time that passes when somebody waits; ``during`` is called then, with the time."""

    def __init__(self) -> None:
        self.now_s = 1_000.0
        self.waited_s = 0.0
        self.during: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        self.now_s += seconds
        self.waited_s += seconds
        self.during()

    def lease(self, store: MemoryStore, ahead_s: float = 0.0) -> Lease:
        return Lease(store, 20.0, now_s=lambda: self.now_s + ahead_s, tick_s=lambda: self.now_s, sleep=self.sleep)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


def change(store: MemoryStore, number: int, **fields: Any) -> None:
    """Change what a lease says, as if somebody else had written it."""
    name = f"{store.location}/.lease/{number:012d}.json"
    store.files[name] = json.dumps(json.loads(store.files[name]) | fields).encode()


def test_a_lease_that_was_released_is_taken_at_once(store: MemoryStore, clock: Clock) -> None:
    first, second = clock.lease(store), clock.lease(store)
    first.acquire()
    assert first.is_fresh
    assert first.number == 1
    first.release()
    assert not first.is_fresh
    second.acquire()
    assert second.number == 2
    assert clock.waited_s == 0.0
    assert store.list_names(".lease") == ["000000000002.json"], "old leases are removed"


def test_a_live_holder_is_left_alone(store: MemoryStore, clock: Clock) -> None:
    first, second = clock.lease(store), clock.lease(store)
    first.acquire()
    clock.during = lambda: first.renew() if first.is_due else None
    with pytest.raises(HeldError, match=r"a driver on .* holds it and is alive"):
        second.acquire()
    assert clock.waited_s <= 7.0, "it renews every five seconds, which is enough to know"
    first.renew()
    assert first.is_fresh


def test_a_dead_driver_elsewhere_is_waited_out(store: MemoryStore, clock: Clock) -> None:
    clock.lease(store).acquire()
    change(store, 1, machine="another", host="far")
    second = clock.lease(store)
    second.acquire()
    assert second.number == 2
    assert clock.waited_s == pytest.approx(20.0, abs=2.0)


def test_a_lease_that_expired_long_ago_needs_no_waiting(store: MemoryStore, clock: Clock) -> None:
    clock.lease(store).acquire()
    change(store, 1, machine="another")
    clock.now_s += 3_600.0
    clock.lease(store).acquire()
    assert clock.waited_s == 0.0


def test_a_clock_that_is_ahead_takes_nothing_from_a_live_holder(store: MemoryStore, clock: Clock) -> None:
    first = clock.lease(store)
    first.acquire()
    clock.during = lambda: first.renew() if first.is_due else None
    with pytest.raises(HeldError):
        clock.lease(store, ahead_s=50.0).acquire()


def test_a_dead_process_of_this_machine_needs_no_waiting(store: MemoryStore, clock: Clock) -> None:
    code = (
        "import sys; from penstock.storage import Lease; from penstock.testing.stores import MemoryStore\n"
        "store = MemoryStore(); Lease(store).acquire(); sys.stdout.buffer.write(next(iter(store.files.values())))"
    )
    done = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True)
    store.files[f"{store.location}/.lease/000000000001.json"] = done.stdout
    clock.lease(store).acquire()
    assert clock.waited_s == 0.0


def test_a_process_number_that_was_given_again_is_not_its_holder(store: MemoryStore, clock: Clock) -> None:
    clock.lease(store).acquire()
    change(store, 1, started="1")
    clock.lease(store).acquire()
    assert clock.waited_s == 0.0


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b"\xff\x00"])
def test_a_torn_lease_stops_nobody(store: MemoryStore, clock: Clock, content: bytes) -> None:
    store.files[f"{store.location}/.lease/000000000003.json"] = content
    lease = clock.lease(store)
    lease.acquire()
    assert lease.number == 4


def test_of_two_that_take_over_one_succeeds(store: MemoryStore, clock: Clock) -> None:
    clock.lease(store).acquire()
    change(store, 1, machine="another")
    second, third = clock.lease(store), clock.lease(store)
    calls: list[int] = []

    def interrupt() -> None:
        if not calls:
            calls.append(1)
            clock.during = lambda: None
            third.acquire()

    clock.during = interrupt
    with pytest.raises(HeldError):
        second.acquire()
    assert third.is_fresh


def test_who_stalled_finds_out(store: MemoryStore, clock: Clock) -> None:
    first, second = clock.lease(store), clock.lease(store)
    first.acquire()
    change(store, 1, machine="another")
    second.acquire()
    assert not first.is_fresh, "it may not write without renewing first"
    with pytest.raises(LeaseLostError, match="another job has taken memory://store over"):
        first.renew()
    assert first.number is None
    first.release()
    second.renew()
    assert second.is_fresh


def test_storage_that_was_away_for_a_minute_costs_no_lease(store: MemoryStore, clock: Clock) -> None:
    lease = clock.lease(store)
    lease.acquire()
    store.fail_with = OSError("away")
    clock.now_s += 60.0
    with pytest.raises(OSError, match="away"):
        lease.renew()
    assert not lease.is_fresh
    store.fail_with = None
    lease.renew()
    assert lease.is_fresh
    assert lease.number == 1


def test_a_renewal_replaces_nothing(store: MemoryStore, clock: Clock) -> None:
    """To replace a file is to delete and to rename it on many filesystems; a lease that is held is never gone."""
    lease = clock.lease(store)
    lease.acquire()
    numbers: set[bool] = set()
    request = store.request

    def watch(verb: str, name: str, change: Callable[[], None] = lambda: None) -> None:
        request(verb, name, change)
        numbers.add(any("/.lease/000000000001" in path for path in store.files))

    store.request = watch  # type: ignore[method-assign]
    for _ in range(3):
        clock.now_s += 5.0
        lease.renew()
    assert numbers == {True}
    assert "replace" not in {verb for verb, _ in store.requests}
    assert store.list_names(".lease") == ["000000000001-000000003.json", "000000000001.json"], "old beats are removed"
    assert json.loads(store.read(".lease/000000000001-000000003.json"))["expires_s"] == clock.now_s + 20.0
    lease.release()
    second = clock.lease(store)
    second.acquire()
    assert clock.waited_s == 0.0, "it was released"
    assert store.list_names(".lease") == ["000000000002.json"]


def test_a_renewal_whose_answer_is_lost_can_be_repeated(store: MemoryStore, clock: Clock) -> None:
    lease = clock.lease(store)
    lease.acquire()
    store.fail_with, store.loses_answers = OSError("no answer"), True
    with pytest.raises(OSError, match="no answer"):
        lease.renew()
    store.fail_with = None
    lease.renew()
    assert lease.is_fresh
    lease.release()
    clock.lease(store).acquire()
    assert clock.waited_s == 0.0


def test_a_beat_that_is_removed_while_one_looks(store: MemoryStore, clock: Clock) -> None:
    """Its holder is alive, and must not be taken for gone."""
    first, second = clock.lease(store), clock.lease(store)
    first.acquire()
    first.renew()
    read = MemoryStore.read

    def read_late(self: MemoryStore, name: str) -> bytes:
        if self.location.endswith(".lease"):
            first.renew()
        return read(self, name)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryStore, "read", read_late)
        with pytest.raises(HeldError):
            second.acquire()
    assert first.number == 1


def test_a_lease_that_is_being_written_is_watched(store: MemoryStore, clock: Clock) -> None:
    """Where a file appears before it is whole, who looks then finds nothing that can be read."""
    first = clock.lease(store)
    first.acquire()
    name = f"{store.location}/.lease/000000000001.json"
    content, store.files[name] = store.files[name], b""

    def finish() -> None:
        store.files[name] = content

    clock.during = finish
    with pytest.raises(HeldError, match="holds it and is alive"):
        clock.lease(store).acquire()
