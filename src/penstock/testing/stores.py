"""A store in memory that can be slow, fail and lose answers, and a contract for stores of your own. Needs no Spark."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ClassVar

from penstock.storage import Lease, Store

__all__ = ["MemoryStore", "SharedStoreContract", "StoreContract"]


class MemoryStore(Store):
    """Files in memory, as an object store would have them.

    Parameters
    ----------
    files
        By path; stores that share them see the same. A new one if not given.
    latency_s
        How long each request takes.
    location
        What it calls itself.
    parent
        The store whose directory this is, which it is as slow as.

    Examples
    --------
    >>> store = MemoryStore(latency_s=0.001)
    >>> store.create("x", b"1")
    >>> store.fail_with = OSError("the storage is away")
    >>> store.read("x")
    Traceback (most recent call last):
    OSError: the storage is away
    """

    is_remote: ClassVar[bool] = True

    def __init__(
        self,
        files: dict[str, bytes] | None = None,
        *,
        latency_s: float = 0.0,
        location: str = "memory://store",
        parent: MemoryStore | None = None,
    ) -> None:
        self.files = {} if files is None else files
        self.latency_s = latency_s
        self.location = location
        self.fail_with: OSError | None = None
        """What every request raises, while it is set."""
        self.loses_answers = False
        """Whether a write that fails has arrived all the same."""
        self.gate = threading.Event()
        """Requests wait while it is not set."""
        self.gate.set()
        self.requests: list[tuple[str, str]] = []
        """What was asked for: verb and name."""
        self._changing = threading.Lock()
        self._parent = parent

    def below(self, folder: str) -> MemoryStore:
        """Return a store of the same files, which is slow and fails when this one does."""
        return MemoryStore(self.files, location=f"{self.location}/{folder}", parent=self)

    def make(self) -> None:
        """Do nothing: an object store has no directories."""

    def exists(self) -> bool:
        """Return whether there is a file below the directory."""
        self.request("exists", "")
        return any(path.startswith(f"{self.location}/") for path in list(self.files))

    def list_names(self, folder: str = "") -> list[str]:
        """Return the names in a directory."""
        self.request("list", folder)
        root = f"{self._path(folder).rstrip('/')}/"
        return sorted({path.removeprefix(root).split("/", 1)[0] for path in list(self.files) if path.startswith(root)})

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        self.request("read", name)
        try:
            return self.files[self._path(name)]
        except KeyError:
            raise FileNotFoundError(f"{self._path(name)} does not exist") from None

    def create(self, name: str, content: bytes) -> None:
        """Write a file that must not exist yet."""

        def write() -> None:
            with self._changing:
                if self._path(name) in self.files:
                    raise FileExistsError(f"{name} exists already")
                self.files[self._path(name)] = content

        self.request("create", name, write)

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, also over one that exists."""

        def write() -> None:
            self.files[self._path(name)] = content

        self.request("replace", name, write)

    def delete(self, name: str) -> None:
        """Remove a file or a directory."""

        def remove() -> None:
            for path in list(self.files):
                if path == self._path(name) or path.startswith(f"{self._path(name)}/"):
                    self.files.pop(path, None)

        self.request("delete", name, remove)

    def copy(self, source: str, target: str) -> None:
        """Copy a file or a directory."""

        def copy() -> None:
            origin = self._path(source)
            for path, content in list(self.files.items()):
                if path == origin or path.startswith(f"{origin}/"):
                    self.files[self._path(target) + path.removeprefix(origin)] = content

        self.request("copy", source, copy)

    def hold(self) -> Lease:
        """Return a lease on the directory."""
        return Lease(self)

    def _path(self, name: str) -> str:
        return f"{self.location}/{name}"

    def request(self, verb: str, name: str, change: Callable[[], None] = lambda: None) -> None:
        """Note a request, let its time pass, and carry it out unless it fails."""
        if self._parent is not None:
            self._parent.request(verb, f"{self.location.rsplit('/', 1)[-1]}/{name}", change)
            return
        self.requests.append((verb, name))
        if self.latency_s:
            time.sleep(self.latency_s)
        self.gate.wait()
        failure = self.fail_with
        if failure is None or self.loses_answers:
            change()
        if failure is not None:
            raise failure


class StoreContract:
    """What every store must hold to. Subclass it and say how to make an empty one; each test gets its own."""

    def new_store(self) -> Store:
        """Return a store of an empty directory that may not exist yet."""
        raise NotImplementedError

    def test_nothing_is_there_at_first(self) -> None:
        """A directory that does not exist has no names."""
        store = self.new_store()
        assert store.list_names() == []
        assert store.below("none").list_names("deep") == []
        assert isinstance(_error_of(lambda: store.read("none")), FileNotFoundError)
        store.delete("none")
        store.copy("none", "other")

    def test_what_is_created_is_read_back_whole(self) -> None:
        """Also bytes of any kind, none at all, and many."""
        store = self.new_store()
        store.make()
        for name, content in {"empty": b"", "text": b"a\nb", "bytes": bytes(range(256)), "large": b"xyz" * 100_000}.items():
            store.create(name, content)
            assert store.read(name) == content
        assert sorted(store.list_names()) == ["bytes", "empty", "large", "text"]
        assert store.exists()

    def test_a_file_is_created_once(self) -> None:
        """The first content stays, and nothing of the second is left."""
        store = self.new_store()
        store.make()
        store.create("x", b"first")
        assert isinstance(_error_of(lambda: store.create("x", b"second")), FileExistsError)
        assert store.read("x") == b"first"
        assert store.list_names() == ["x"]

    def test_replacing(self) -> None:
        """With or without a file before."""
        store = self.new_store()
        store.make()
        store.replace("x", b"longer than the next")
        store.replace("x", b"short")
        assert store.read("x") == b"short"
        assert store.list_names() == ["x"]

    def test_deleting(self) -> None:
        """Files and directories, and the same twice."""
        store = self.new_store()
        store.make()
        store.create("x", b"1")
        store.below("folder").make()
        store.below("folder").create("y", b"2")
        for name in ("x", "folder", "x"):
            store.delete(name)
        assert store.list_names() == []

    def test_below(self) -> None:
        """A directory below is a store of its own."""
        store = self.new_store()
        below = store.below("a").below("b")
        below.make()
        below.create("x", b"1")
        assert store.read("a/b/x") == b"1"
        assert store.list_names("a/b") == ["x"]
        assert store.list_names() == ["a"]
        assert below.location == f"{store.location}/a/b"

    def test_copying(self) -> None:
        """A file, and a directory with what is in it."""
        store = self.new_store()
        below = store.below("a").below("b")
        below.make()
        below.create("x", b"1")
        store.copy("a/b/x", "deep/er/x")
        store.copy("a", "copied")
        assert store.read("deep/er/x") == b"1"
        assert store.read("copied/b/x") == b"1"
        assert store.read("a/b/x") == b"1"

    def test_many_are_read_in_order(self) -> None:
        """Those that are missing come with their error."""
        store = self.new_store()
        store.make()
        names = [f"{number:03d}" for number in range(40)]
        for name in names:
            store.create(name, name.encode())
        found = list(store.read_all(["none", *reversed(names)]))
        assert isinstance(found[0][1], FileNotFoundError)
        assert found[1:] == [(name, name.encode()) for name in reversed(names)]

    def test_it_is_held_once(self) -> None:
        """By one job, which may give it back."""
        store = self.new_store()
        store.make()
        one, two = store.hold(), store.hold()
        one.acquire()
        one.release()
        two.acquire()
        two.release()
        two.release()


class SharedStoreContract(StoreContract):
    """What a store must hold to as well where several machines may write: locks do not help there."""

    def test_of_several_that_create_one_file_one_succeeds(self) -> None:
        """However close they come."""
        store = self.new_store()
        store.make()

        def create(name: str, number: int) -> int:
            try:
                store.create(name, str(number).encode())
            except FileExistsError:
                return 0
            return 1

        with ThreadPoolExecutor(8) as pool:
            for name in map(str, range(5)):
                assert sum(pool.map(lambda number, name=name: create(name, number), range(8))) == 1


def _error_of(call: Callable[[], object]) -> OSError | None:
    try:
        call()
    except OSError as error:
        return error
    return None
