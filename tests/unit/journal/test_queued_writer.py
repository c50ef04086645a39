"""A journal far away: a batch waits for one request, failures lose nothing, and only one job writes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Callable, Iterator
from unittest import mock

import pytest

from penstock.errors import JournalError
from penstock.journal import BatchRecord, DecisionRecord, Journal, read_journal
from penstock.journal.files import seal
from penstock.journal.queued_writer import QueuedWriter
from penstock.journal.records import encode
from penstock.storage import Lease
from penstock.testing.stores import MemoryStore


def decision(batch_id: int, keep: float = 0.5) -> DecisionRecord:
    return DecisionRecord({"in": (keep,)}, keep, batch_id=batch_id)


def batch(batch_id: int, offered: int = 10, kept: int = 4) -> BatchRecord:
    return BatchRecord(batch_id, {"in": (offered, kept)})


def wait_until(is_so: Callable[[], object], seconds: float = 20.0) -> None:
    end_s = time.monotonic() + seconds
    while not is_so():
        assert time.monotonic() < end_s, "it never came"
        time.sleep(0.005)


Open = Callable[..., Journal]


@pytest.fixture
def store() -> MemoryStore:
    return MemoryStore()


@pytest.fixture
def open_journal(store: MemoryStore) -> Iterator[Open]:
    """Opens journals that are closed at the end."""
    journals: list[Journal] = []

    def opened(
        at: MemoryStore | None = None, lease_s: float = 20.0, patience_s: float = 5.0, retain: int = 4096, linger_s: float = 0.0
    ) -> Journal:
        place = store if at is None else at
        writer = QueuedWriter(place, retain, Lease(place, lease_s), patience_s, linger_s)
        journals.append(Journal(place, "job", writer=writer))
        return journals[-1]

    yield opened
    store.gate.set()
    for journal in journals:
        journal.close()


def writes(store: MemoryStore) -> list[str]:
    return [name for verb, name in store.requests if verb == "create" and "lease" not in name]


def test_what_is_written_is_read_back(store: MemoryStore, open_journal: Open) -> None:
    journal = open_journal()
    journal.append(decision(0))
    assert store.files[f"{store.location}/000000000001.json"], "durable when append returns"
    assert journal.state.decision_for(0) == decision(0)
    journal.append(batch(0), decision(1))
    journal.append(batch(1))
    journal.append("something went wrong")
    journal.close()
    journal.close()
    state = read_journal(store)
    assert state.decisions == [decision(0), decision(1)]
    assert state.batches == {0: batch(0), 1: batch(1)}
    assert state.errors == ["something went wrong"]
    assert state.damage == []
    with pytest.raises(JournalError, match="is closed"):
        journal.append(batch(2))


def test_a_decision_waits_for_one_request_and_a_record_for_none(store: MemoryStore, open_journal: Open) -> None:
    journal = open_journal()
    store.requests.clear()
    store.gate.clear()
    began = time.monotonic()
    for number in range(20):
        journal.append(batch(number))
    assert time.monotonic() - began < 5.0, "nothing was answered"
    waiting = threading.Thread(target=journal.append, args=(decision(20),))
    waiting.start()
    assert journal.state.batches == {}
    store.gate.set()
    waiting.join(20)
    assert journal.state.decision_for(20) == decision(20)
    assert sorted(journal.state.batches) == list(range(20))
    assert len(writes(store)) <= 2, "what has piled up is one file"


def test_a_record_is_written_with_the_decision_behind_it(store: MemoryStore, open_journal: Open) -> None:
    """Else the decision would stand in line behind it, and its batch would wait for two requests."""
    journal = open_journal(linger_s=60.0)
    journal.append(decision(0))
    store.requests.clear()
    for number in range(5):
        journal.append(batch(number))
        assert journal.state.batches.keys() == set(range(number))
        journal.append(decision(number + 1))
        assert journal.state.batches.keys() == set(range(number + 1)), "it is as durable as the decision"
    assert len(writes(store)) == 5
    journal.append(batch(5))
    journal.close()
    assert read_journal(store).batches.keys() == set(range(6)), "nothing is left behind at the end"


def test_a_record_that_no_decision_follows_is_written_soon(store: MemoryStore, open_journal: Open) -> None:
    journal = open_journal(linger_s=0.2)
    began_s = time.monotonic()
    journal.append(batch(0))
    time.sleep(0.05)
    journal.append(batch(1))
    wait_until(lambda: 1 in journal.state.batches)
    assert time.monotonic() - began_s >= 0.2
    assert len(writes(store)) == 2, "both are one file, after the empty one of the start"


def test_a_record_that_lingers_survives_a_decision_that_fails(store: MemoryStore, open_journal: Open) -> None:
    journal = open_journal(linger_s=60.0)
    journal.append(batch(0))
    store.fail_with = OSError("the storage is away")
    with pytest.raises(JournalError, match="the storage is away"):
        journal.append(decision(1))
    store.fail_with = None
    wait_until(lambda: 0 in journal.state.batches)
    assert journal.state.decisions == []


def test_at_the_end_of_the_process_nothing_lingers(store: MemoryStore, open_journal: Open) -> None:
    """A job may end without stopping its query."""
    with mock.patch("atexit.register") as register:
        journal = open_journal(linger_s=60.0)
    journal.append(batch(0))
    (at_exit,) = (call.args[0] for call in register.call_args_list)
    began = time.monotonic()
    at_exit()
    assert time.monotonic() - began < 5.0
    assert read_journal(store).batches == {0: batch(0)}


def test_a_process_that_ends_waits_for_storage_that_fails_no_longer_than_a_batch_would(
    store: MemoryStore, open_journal: Open
) -> None:
    with mock.patch("atexit.register") as register:
        journal = open_journal(linger_s=60.0, patience_s=0.2)
    store.gate.clear()
    journal.append(batch(0))
    (at_exit,) = (call.args[0] for call in register.call_args_list)
    began = time.monotonic()
    at_exit()
    assert time.monotonic() - began < 5.0


def test_a_journal_that_is_closed_is_forgotten_at_the_end_of_the_process(store: MemoryStore, open_journal: Open) -> None:
    with mock.patch("atexit.unregister") as unregister:
        open_journal().close()
    unregister.assert_called_once()


def test_the_next_run_continues(store: MemoryStore, open_journal: Open) -> None:
    first = open_journal()
    first.append(decision(0))
    first.append(batch(0))
    first.close()
    second = open_journal()
    assert second.state.batches == {0: batch(0)}
    second.append(decision(1))
    assert read_journal(store).decisions == [decision(0), decision(1)]


def test_storage_that_fails_loses_no_count_and_makes_no_decision(
    store: MemoryStore, open_journal: Open, caplog: pytest.LogCaptureFixture
) -> None:
    journal = open_journal()
    journal.append(decision(0))
    store.fail_with = OSError("503 slow down")
    with caplog.at_level(logging.WARNING), pytest.raises(JournalError, match="can't be written: 503 slow down"):
        journal.append(batch(0), decision(1))
    for number in range(1, 5):
        journal.append(batch(number))
        began = time.monotonic()
        with pytest.raises(JournalError, match="can't be written: 503 slow down"):
            journal.append(decision(number + 1))
        assert time.monotonic() - began < 1.0, "while it is away no batch waits for it"
    journal.append_later(decision(1, 0.9))
    assert read_nothing_new(store)
    store.fail_with = None
    wait_until(lambda: sorted(journal.state.batches) == [0, 1, 2, 3, 4])
    journal.append(decision(5))
    journal.close()
    state = read_journal(store)
    assert sorted(state.batches) == [0, 1, 2, 3, 4]
    assert state.decisions == [decision(0), decision(1, 0.9), decision(5)]
    assert "what is not written yet is kept" in caplog.text


def read_nothing_new(store: MemoryStore) -> bool:
    return max(name for name in store.files if "lease" not in name and "owner" not in name).endswith("000000000001.json")


def test_a_write_whose_answer_was_lost_counts_once(store: MemoryStore, open_journal: Open) -> None:
    journal = open_journal()
    store.fail_with, store.loses_answers = OSError("connection reset"), True
    journal.append(batch(0))
    wait_until(lambda: len(writes(store)) > 1)
    store.fail_with, store.loses_answers = None, False
    journal.append(batch(1))
    wait_until(lambda: sorted(journal.state.batches) == [0, 1])
    journal.append(decision(2))
    journal.close()
    state = read_journal(store)
    assert state.totals() == {"in": (20, 8)}
    assert state.damage == []


def test_a_decision_whose_answer_was_lost_is_replaced_by_what_held(store: MemoryStore, open_journal: Open) -> None:
    journal = open_journal()
    store.fail_with, store.loses_answers = OSError("connection reset"), True
    with pytest.raises(JournalError, match="connection reset"):
        journal.append(decision(3, 0.1))
    journal.append_later(decision(3, 0.9))
    store.fail_with, store.loses_answers = None, False
    journal.append(batch(3))
    wait_until(lambda: 3 in journal.state.batches)
    assert journal.state.decision_for(3) == decision(3, 0.9)
    journal.close()
    state = read_journal(store)
    assert state.decisions == [decision(3, 0.1), decision(3, 0.9)], "it did arrive; the later one stands"
    assert state.decision_for(3) == decision(3, 0.9)


def test_a_write_that_hangs_is_given_up(store: MemoryStore, open_journal: Open) -> None:
    journal = open_journal(patience_s=0.1)
    store.gate.clear()
    with pytest.raises(JournalError, match=r"no answer within 0.1 s"):
        journal.append(batch(0), decision(1, 0.1))
    journal.append_later(decision(1, 0.9))
    with pytest.raises(JournalError, match=r"no answer within 0.1 s"):
        journal.append(batch(1), decision(2, 0.1))
    journal.append(batch(2))
    store.gate.set()
    wait_until(lambda: 2 in journal.state.batches)
    journal.close()
    state = read_journal(store)
    assert sorted(state.batches) == [0, 1, 2]
    assert state.decision_for(1) == decision(1, 0.9), "it arrived late, and the batch had run with another table"
    assert state.decision_for(2) is None, "that one was never sent"


def test_a_second_job_is_refused_and_the_first_goes_on(store: MemoryStore, open_journal: Open) -> None:
    first = open_journal(lease_s=0.4)
    with pytest.raises(JournalError, match=r"is in use by another job \(a driver on .* is alive\)"):
        open_journal(lease_s=0.4)
    first.append(decision(0))
    assert read_journal(store).decisions == [decision(0)]


def test_who_was_taken_for_dead_can_write_no_more(store: MemoryStore, open_journal: Open) -> None:
    """Its storage was away for longer than its lease, and another job took over meanwhile."""
    cut_off = MemoryStore(store.files)
    first = open_journal(cut_off, lease_s=0.4)
    first.append(decision(0))
    cut_off.fail_with = OSError("away")
    second = open_journal(lease_s=0.4)
    assert second.state.decisions == [decision(0)]
    cut_off.fail_with = None
    with pytest.raises(JournalError, match=r"another job (writes here|has taken .* over)"):
        first.append(decision(1, 0.1))
    with pytest.raises(JournalError, match=r"another job (writes here|has taken .* over)"):
        first.append(decision(2, 0.1))
    second.append(decision(1, 0.9))
    second.append(batch(1))
    second.close()
    state = read_journal(store)
    assert state.decisions == [decision(0), decision(1, 0.9)]
    assert state.batches == {1: batch(1)}


def test_who_took_over_in_an_outage_is_not_taken_for_oneself(store: MemoryStore, open_journal: Open) -> None:
    """The cut-off job tries an empty file until the storage is back, and the other one has begun with an empty file."""
    cut_off = MemoryStore(store.files)
    first = open_journal(cut_off)
    cut_off.fail_with = OSError("away")
    with pytest.raises(JournalError, match="away"):
        first.append(decision(0, 0.1))
    name = next(name for name in store.files if "/.lease/" in name)
    store.files[name] = store.files[name].replace(b'"released": false', b'"released": true')
    second = open_journal()
    tried = len(writes(cut_off))
    cut_off.fail_with = None
    wait_until(lambda: len(writes(cut_off)) > tried)
    wait_until(lambda: not first._writer._entries or first._writer._fenced)  # type: ignore[attr-defined]
    with pytest.raises(JournalError, match=r"another job has taken .* over"):
        first.append(decision(0, 0.1))
    second.append(decision(0, 0.9))
    second.close()
    assert read_journal(store).decisions == [decision(0, 0.9)]


def test_the_last_write_of_the_dead_may_arrive_while_the_next_opens(store: MemoryStore, open_journal: Open) -> None:
    first = open_journal()
    first.append(decision(0))
    late = MemoryStore(store.files)
    first.close()
    read = store.read_all

    def arrive(names: object) -> object:
        found = list(read(names))  # type: ignore[arg-type]
        late.files.setdefault(f"{late.location}/000000000002.json", seal([encode(decision(1))]))
        return found

    store.read_all = arrive  # type: ignore[method-assign,assignment]
    second = open_journal()
    assert second.state.next_number == 4
    assert len(second.state.decisions) == 2
    second.append(batch(0))


def test_compacting_happens_beside_and_loses_nothing(store: MemoryStore, open_journal: Open) -> None:
    journal = open_journal(retain=50)
    for number in range(400):
        journal.append(decision(number))
        journal.append(batch(number, 10, number % 10))
    wait_until(lambda: len(store.files) < 400)
    journal.close()
    state = read_journal(store)
    assert state.compacted_batches + len(state.batches) == 400
    assert state.totals()["in"] == (4000, sum(n % 10 for n in range(400)))
    assert state.decision_for(399) == decision(399)
    again = open_journal(retain=50)
    assert again.state.totals() == state.totals()


def test_a_compaction_that_fails_leaves_the_files(store: MemoryStore, open_journal: Open) -> None:
    journal = open_journal(retain=5)
    create = store.create

    def fail(name: str, content: bytes) -> None:
        if "compact" in name:
            raise OSError("too large")
        create(name, content)

    store.create = fail  # type: ignore[method-assign]
    for number in range(300):
        journal.append(decision(number))
        journal.append(batch(number))
    journal.close()
    assert read_journal(store).totals() == {"in": (3000, 1200)}


def test_no_permission(store: MemoryStore) -> None:
    store.fail_with = PermissionError("AccessDeniedException: s3a://b/cp/penstock: 403")
    with pytest.raises(JournalError, match="the journal in memory://store can't be written: AccessDeniedException") as caught:
        Journal(store, "job")
    assert "\n" not in str(caught.value)
    assert store.files == {}
