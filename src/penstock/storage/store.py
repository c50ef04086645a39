"""What Penstock needs of the storage that holds a journal, a checkpoint or a log of shed rows."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator
from typing import ClassVar, Protocol

__all__ = ["HeldError", "Hold", "Store"]


class HeldError(OSError):
    """Another job holds the directory; the message says which, as far as it is known."""


class Hold(Protocol):
    """Keeps a directory for one job."""

    def acquire(self) -> None:
        """Take it.

        Raises
        ------
        HeldError
            If another job has it.
        """

    def release(self) -> None:
        """Give it back; does nothing if it is not held."""


class Store(ABC):
    """One directory, and what lies below it. Whatever fails raises an ``OSError`` with a message of one line.

    A file appears whole or not at all, and is durable once the call returns. There is no append: logs are files that are created
    one after the other, each only if it is not there yet, which object stores can do as well as disks.
    """

    is_remote: ClassVar[bool]
    """Whether a request takes so long that it should not stand in a batch's path."""

    location: str
    """The directory, as its filesystem names it."""

    @abstractmethod
    def below(self, folder: str) -> Store:
        """Return the store of a directory below this one."""

    @abstractmethod
    def make(self) -> None:
        """Make the directory, and those above it, where it does not exist."""

    @abstractmethod
    def exists(self) -> bool:
        """Return whether the directory exists."""

    @abstractmethod
    def list_names(self, folder: str = "") -> list[str]:
        """Return the names in a directory; none if it does not exist."""

    @abstractmethod
    def read(self, name: str) -> bytes:
        """Return the content of a file.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        """

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | OSError]]:
        """Yield each name with the content of its file, or with why it can't be read; in the order given."""
        for name in names:
            try:
                yield name, self.read(name)
            except OSError as error:
                yield name, error

    @abstractmethod
    def create(self, name: str, content: bytes) -> None:
        """Write a file that must not exist yet.

        Raises
        ------
        FileExistsError
            If it does. Of several that create the same one at once, only one succeeds.
        """

    def create_unsynced(self, name: str, content: bytes) -> None:
        """Write a file that must not exist yet. A power cut may take it back or tear it; a crash of the process does neither.

        Where that saves nothing, it is durable.
        """
        self.create(name, content)

    @abstractmethod
    def replace(self, name: str, content: bytes) -> None:
        """Write a file, also over one that exists."""

    @abstractmethod
    def delete(self, name: str) -> None:
        """Remove a file, or a directory with all that is in it; does nothing if it does not exist."""

    @abstractmethod
    def copy(self, source: str, target: str) -> None:
        """Copy a file, or a directory with all that is in it; does nothing if it does not exist."""

    def changed_s(self) -> float | None:
        """Return when a file was last added or removed; ``None`` if that is unknown, as on an object store."""
        return None

    def is_held(self) -> bool | None:
        """Return whether a job holds the directory, without touching its lock; ``None`` where nobody can tell."""
        return None

    @abstractmethod
    def hold(self) -> Hold:
        """Return what keeps the directory for one job."""
