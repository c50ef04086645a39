"""The stores that need no Spark hold to the contract, and the one that only reads sees what another wrote."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyarrow import fs

from penstock.storage import Store, open_store
from penstock.storage.arrow_store import ArrowStore
from penstock.storage.local_store import LocalStore
from penstock.testing.stores import MemoryStore, SharedStoreContract, StoreContract


class TestLocal(StoreContract):
    @pytest.fixture(autouse=True)
    def _place(self, tmp_path: Path) -> None:
        self.place = tmp_path

    def new_store(self) -> Store:
        return LocalStore(self.place / "new" / "store")


class TestMemory(SharedStoreContract):
    def new_store(self) -> Store:
        return MemoryStore()


class TestSlowMemory(SharedStoreContract):
    def new_store(self) -> Store:
        return MemoryStore(latency_s=0.001)


def test_what_pyarrow_reads(tmp_path: Path) -> None:
    written = LocalStore(tmp_path / "a")
    written.make()
    for name in ("x", "y"):
        written.create(name, name.encode())
    elsewhere = fs.SubTreeFileSystem(str(tmp_path), fs.LocalFileSystem())
    store = ArrowStore(elsewhere, "a", "warp://a")
    assert store.exists()
    assert sorted(store.list_names()) == ["x", "y"]
    assert [content for _, content in store.read_all(["y", "x"])] == [b"y", b"x"]
    assert not store.below("none").exists()
    assert store.below("none").list_names() == []
    with pytest.raises(FileNotFoundError):
        store.read("none")
    for refused in (lambda: store.create("z", b""), lambda: store.delete("x"), store.hold, store.make):
        with pytest.raises(PermissionError, match="warp://a is read without Spark, and only jobs write there"):
            refused()


def test_an_address_or_a_store(tmp_path: Path) -> None:
    store = open_store(f"file:{tmp_path}", "the journal")
    assert isinstance(store, LocalStore)
    assert store.location == str(tmp_path)
    assert open_store(store, "the journal") is store
