"""The log of offsets, and the rows that it stands for."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

from penstock.drop.hashing import gate_seed, uniform
from penstock.errors import PenstockError
from penstock.shed.coordinates import find_shed_offsets, find_shed_rows
from penstock.shed.shed_log import DIRECTORY, OffsetRange, ShedLog, ShedRecord


def record(batch: int, keep: float = 0.5, gate: str = "in") -> ShedRecord:
    return ShedRecord(batch, gate, keep, (OffsetRange("t", 0, 10 * batch, 10 * batch + 10),))


def test_records_come_back_in_order(tmp_path: Path) -> None:
    log = ShedLog(tmp_path)
    for batch in (3, 64, 65, 200):
        log.add(record(batch))
    log.add(record(200, gate="other"))
    aged = ShedRecord(201, "in", 0.9, (OffsetRange("t", 1, 0, 5), OffsetRange("u", 0, 7, 9)), 0.1, 1_700_000_000_000_000)
    log.add(aged)
    again = list(ShedLog(tmp_path).read())
    assert again == [record(3), record(64), record(65), record(200), record(200, gate="other"), aged]
    assert len(list((tmp_path / DIRECTORY).iterdir())) == 3


def test_a_replayed_batch_replaces_its_record(tmp_path: Path) -> None:
    ShedLog(tmp_path).add(record(1))
    after_a_restart = ShedLog(tmp_path)
    after_a_restart.add(record(1, keep=0.25))
    after_a_restart.add(record(2))
    assert list(after_a_restart.read()) == [record(1, keep=0.25), record(2)]


def test_a_damaged_log_is_named(tmp_path: Path) -> None:
    log = ShedLog(tmp_path)
    log.add(record(1))
    (path,) = (tmp_path / DIRECTORY).iterdir()
    path.write_bytes(path.read_bytes()[:-3])
    with pytest.raises(PenstockError, match=f"{path} is damaged: its checksum does not match"):
        list(log.read())


def test_no_log_is_said_in_one_line(tmp_path: Path) -> None:
    with pytest.raises(PenstockError, match=r"there is no log of shed rows in .*: give the gate shed_to='offsets'"):
        list(ShedLog(tmp_path).read())


def test_shed_offsets_are_those_that_the_gate_s_hash_does_not_keep() -> None:
    one = ShedRecord(0, "in", 0.3, (OffsetRange("clicks", 3, 1_000, 3_000),))
    ((part, shed),) = find_shed_offsets(one)
    offsets = np.arange(1_000, 3_000)
    columns = [pa.array(["clicks"] * 2_000), pa.array([3] * 2_000, pa.int32()), pa.array(offsets)]
    assert shed.tolist() == offsets[uniform(gate_seed("in"), columns) >= 0.3].tolist()
    assert part == one.ranges[0]


def test_ages_need_timestamps() -> None:
    one = ShedRecord(0, "in", 0.9, (OffsetRange("t", 0, 0, 1_000),), 0.1, 500)
    with pytest.raises(PenstockError, match="timestamps are needed"):
        list(find_shed_offsets(one))
    offsets = np.arange(1_000)
    reasons = find_shed_rows(one, one.ranges[0], offsets, offsets)
    u = uniform(gate_seed("in"), [pa.array(["t"] * 1_000), pa.array([0] * 1_000, pa.int32()), pa.array(offsets)])
    assert reasons[:500].tolist() == np.where(u[:500] < 0.1, 0, 2).tolist()
    assert reasons[500:].tolist() == np.where(u[500:] < 0.9, 0, 1).tolist()
