"""A directory on any filesystem that Spark can reach, through the session's own Hadoop configuration and credentials."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from pyspark.errors import PySparkException

from penstock.errors import PenstockError
from penstock.spark.java_errors import Py4JError, Py4JJavaError
from penstock.spark.versions import Internals, internals_of
from penstock.storage import Lease, Store
from penstock.storage.arrow_store import read_or_error
from penstock.storage.mounted_store import open_local_store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["HadoopStore", "open_session_store"]

_READERS = 16
_CONDITIONAL = "fs.option.create.conditional.overwrite"
_QUICK = "fs.s3a.create.performance"
_CREATES_WHOLE = {"s3a", "s3", "gs"}
"""Schemes of object stores: a file appears when it is closed, and a rename is a copy. ``s3`` is what Amazon's own Spark has."""
_CONNECTORS = {
    "s3": "open-source Spark calls it s3a: use s3a:// and add org.apache.hadoop:hadoop-aws:{hadoop} to spark.jars.packages",
    "s3a": "add org.apache.hadoop:hadoop-aws:{hadoop} to spark.jars.packages",
    "abfs": "add org.apache.hadoop:hadoop-azure:{hadoop} to spark.jars.packages",
    "abfss": "add org.apache.hadoop:hadoop-azure:{hadoop} to spark.jars.packages",
    "gs": "add Google's gcs-connector for Hadoop 3 to spark.jars",
    "dbfs": "it exists only on Databricks",
}
_BY_FILESYSTEM = "FileSystemBasedCheckpointFileManager"
"""What Spark's checkpoint manager is where Hadoop has no ``FileContext``; it may leave a file that it should replace."""
_HDFS_DEFAULTS = {
    "dfs.client.block.write.locateFollowingBlock.initial.delay.ms": ("400", "10"),
    "dfs.client.block.write.locateFollowingBlock.retries": ("5", "11"),
}
"""How long HDFS's client waits until it asks again whether a file is closed, doubled each time, and how often it asks: 20 s in
all instead of 12, but a file that is not closed at once takes 0.01 s more instead of 0.4."""
_MISSING = ("UnsupportedFileSystemException", "ClassNotFoundException", "NoClassDefFoundError")
_ERRORS: dict[str, type[OSError]] = {
    "FileNotFoundException": FileNotFoundError,
    "NoSuchFileException": FileNotFoundError,
    "FileAlreadyExistsException": FileExistsError,
    "PathExistsException": FileExistsError,
    "RemoteFileChangedException": FileExistsError,
    "AccessDeniedException": PermissionError,
    "AccessControlException": PermissionError,
    "ParentNotDirectoryException": NotADirectoryError,
}

_REFUSED = ("PreconditionFailed", "412 Precondition", "Status Code: 412", "Status Code: 409")
"""What stores answer to a conditional write of a file that is there."""

T = TypeVar("T")


def open_session_store(spark: SparkSession, location: str | Path, what: str) -> Store:
    """Return the store of a directory as a session sees it: without a scheme, on its default filesystem.

    Parameters
    ----------
    spark
        The session.
    location
        A path or an address.
    what
        What lies there, for messages.

    Raises
    ------
    PenstockError
        If the session has no connector for the address, or it can't be reached.
    """
    jvm: Any = spark._jvm
    conf = spark._jsparkSession.sessionState().newHadoopConf()  # our own copy
    try:
        path = jvm.org.apache.hadoop.fs.Path(str(location))
        filesystem = path.getFileSystem(conf)
        qualified = filesystem.makeQualified(path)
        if str(filesystem.getUri().getScheme()) == "file":
            return open_local_store(str(qualified.toUri().getPath()))
    except Py4JJavaError as error:
        raise PenstockError(_describe_missing(jvm, str(location), what, error)) from None
    except PySparkException as error:  # such as a setting of the connector that is no number
        raise PenstockError(f"{what} {location} can't be reached: {_first_line(error)}") from None
    if all(conf.get(setting, default) == default for setting, (default, _) in _HDFS_DEFAULTS.items()):
        for setting, (_, ours) in _HDFS_DEFAULTS.items():
            conf.set(setting, ours)
    return HadoopStore(jvm, filesystem, conf, str(qualified.toString()), internals_of(spark))


# long because it is all that a store offers
class HadoopStore(Store):
    """Files on a Hadoop filesystem: HDFS, an object store, or a vendor's own.

    A file is created if absent in the way that the filesystem has for it: with a conditional write where it can (S3 since Hadoop
    3.4.2), with a plain creation on object stores, where a file appears when it is closed, and else as Spark's checkpoint manager
    does, under a temporary name and renamed. To replace a file may be to delete it first there, so nothing that must always be
    there is replaced.

    Parameters
    ----------
    jvm
        The session's JVM.
    filesystem, conf
        Hadoop's filesystem and configuration.
    location
        The directory, with its scheme.
    internals
        How this version of Spark does what it does in a way of its own.
    """

    is_remote: ClassVar[bool] = True

    def __init__(self, jvm: Any, filesystem: Any, conf: Any, location: str, internals: Internals) -> None:
        self._jvm, self._fs, self._conf, self._internals = jvm, filesystem, conf, internals
        self.location = location.rstrip("/")
        self._writer = _FileWriter(filesystem, lambda: internals.checkpoint_manager(jvm, self._path(), conf))

    def below(self, folder: str) -> HadoopStore:
        """Return the store of a directory below this one."""
        return HadoopStore(self._jvm, self._fs, self._conf, f"{self.location}/{folder}", self._internals)

    def make(self) -> None:
        """Make the directory; an object store has none."""
        if not self._writer.creates_whole:
            self._call(lambda: self._fs.mkdirs(self._path()))

    def exists(self) -> bool:
        """Return whether the directory exists."""
        return bool(self._call(lambda: self._fs.exists(self._path())))

    def list_names(self, folder: str = "") -> list[str]:
        """Return the names in a directory."""
        try:
            return self._call(lambda: self._list(self._path(folder)))
        except FileNotFoundError:
            return []

    def _list(self, folder: Any) -> list[str]:
        return [str(status.getPath().getName()) for status in self._fs.listStatus(folder)]

    def read(self, name: str) -> bytes:
        """Return the content of a file."""
        return self._call(lambda: self._read(name))

    def _read(self, name: str) -> bytes:
        stream = self._fs.open(self._path(name))
        try:
            return bytes(stream.readAllBytes())
        finally:
            stream.close()

    def read_all(self, names: Iterable[str]) -> Iterator[tuple[str, bytes | OSError]]:
        """Yield each name with the content of its file; several are read at once."""
        with ThreadPoolExecutor(_READERS) as pool:
            yield from pool.map(partial(read_or_error, self), names)

    def create(self, name: str, content: bytes) -> None:
        """Write a file that must not exist yet."""
        path = self._path(name)
        try:
            self._call(lambda: self._writer.write(path, content, overwrite=False))
        except FileExistsError:
            self._writer.clean_up(path)
            raise
        except OSError as error:
            # Of two renames one fails, and each filesystem has another way to say why.
            if self._writer.lost_a_race(path):
                self._writer.clean_up(path)
                raise FileExistsError(str(error)) from None
            raise

    def replace(self, name: str, content: bytes) -> None:
        """Write a file, also over one that exists."""
        self._call(lambda: self._writer.write(self._path(name), content, overwrite=True))

    def delete(self, name: str) -> None:
        """Remove a file or a directory."""
        self._call(lambda: self._fs.delete(self._path(name), True))

    def copy(self, source: str, target: str) -> None:
        """Copy a file or a directory."""
        origin, copied = self._path(source), self._path(target)
        if not self._call(lambda: self._fs.exists(origin)):
            return
        copy = self._jvm.org.apache.hadoop.fs.FileUtil.copy
        self._call(lambda: self._fs.mkdirs(copied.getParent()))
        self._call(lambda: copy(self._fs, origin, self._fs, copied, False, True, self._conf))

    def hold(self) -> Lease:
        """Return a lease on the directory."""
        return Lease(self)

    def _path(self, name: str = "") -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(f"{self.location}/{name}" if name else self.location)

    def _call(self, call: Callable[[], T]) -> T:
        """Call something of Hadoop's; what it raises becomes an ``OSError`` of one line."""
        try:
            return call()
        except Py4JJavaError as error:
            raise _translate(error) from None
        except PySparkException as error:  # one that PySpark has a name for
            raise OSError(_first_line(error)) from None
        except Py4JError as error:
            raise OSError(f"the JVM does not answer: {str(error).splitlines()[0]}") from None


class _FileWriter:
    """Writes files of one directory whole, in the way that its filesystem has for it."""

    def __init__(self, filesystem: Any, make_manager: Callable[[], Any]) -> None:
        self._fs, self._make_manager = filesystem, make_manager
        self.creates_whole = str(filesystem.getUri().getScheme()) in _CREATES_WHOLE
        """Whether a file appears when it is closed."""
        self._is_conditional: bool | None = None
        self._manager: Any = None

    def write(self, path: Any, content: bytes, *, overwrite: bool) -> None:
        """Write a file; without ``overwrite``, only if it is not there."""
        stream = self._open(path, overwrite=overwrite)
        try:
            stream.write(bytearray(content))
            stream.close()
        except BaseException:
            self._cancel(stream)
            raise

    def lost_a_race(self, path: Any) -> bool:
        """Whether a file that could not be created is there, where it would have been renamed."""
        with contextlib.suppress(Py4JError, PySparkException):
            return not self.creates_whole and bool(self._fs.exists(path))
        return False

    def clean_up(self, path: Any) -> None:
        """Remove what Spark's manager wrote under temporary names for a file that is there: it can't be renamed any more."""
        if self.creates_whole:
            return
        start = f".{path.getName()}."
        with contextlib.suppress(Py4JError, PySparkException):
            for status in self._fs.listStatus(path.getParent()):
                name = str(status.getPath().getName())
                if name.startswith(start) and name.endswith(".tmp"):
                    self._fs.delete(status.getPath(), False)

    def _open(self, path: Any, *, overwrite: bool) -> Any:
        if not self.creates_whole:
            manager = self._find_manager()
            if overwrite and str(manager.getClass().getSimpleName()) == _BY_FILESYSTEM:
                return self._fs.create(path, True)
            return manager.createAtomic(path, overwrite)
        if self._is_conditional is None:
            self._is_conditional = bool(self._fs.hasPathCapability(path, _CONDITIONAL))
        builder = self._fs.createFile(path).recursive().overwrite(True)
        if not overwrite and not self._is_conditional:
            return self._fs.create(path, False)  # it looks whether the file is there, then writes it
        # One request: no look whether it is there or is a directory, as the names are ours alone.
        builder = builder.opt(_QUICK, "true") if overwrite else builder.opt(_QUICK, "true").must(_CONDITIONAL, "true")
        return builder.build()

    def _cancel(self, stream: Any) -> None:
        for end in ("cancel", "abort"):  # Spark's streams have the one, those of object stores the other
            with contextlib.suppress(Py4JError, PySparkException):  # what matters is the error that led here
                getattr(stream, end)()
                return

    def _find_manager(self) -> Any:
        if self._manager is None:
            self._manager = self._make_manager()
        return self._manager


def _first_line(error: PySparkException) -> str:
    lines = str(error).strip().splitlines()
    return f"{type(error).__name__}: {lines[0]}" if lines else type(error).__name__


def _translate(error: Any) -> OSError:
    """Return Java's error as Python's."""
    kinds: list[str] = []
    messages: list[str] = []
    reason: str | None = None
    interruption: str | None = None
    cause = error.java_exception
    while cause is not None and len(kinds) < 8:
        kinds.append(str(cause.getClass().getSimpleName()))
        message = str(cause.getMessage() or "")
        messages.append(message)
        if reason is None and message.strip():
            reason = f"{kinds[-1]}: {message.strip().splitlines()[0]}"
        if interruption is None and "Interrupt" in kinds[-1]:
            interruption = str(cause.getClass().getName())  # in full, as interruptions are known
        cause = cause.getCause()
    text = reason or kinds[0]
    if interruption is not None:
        text = f"{text} ({interruption})"
    if any(word in message for message in messages for word in _REFUSED):
        return FileExistsError(text)
    for kind in kinds:
        if kind in _ERRORS:
            return _ERRORS[kind](text)
    return OSError(text)


def _describe_missing(jvm: Any, location: str, what: str, error: Any) -> str:
    """Return the line for an address that the session can't reach."""
    reason = str(_translate(error))
    scheme = location.split(":", 1)[0]
    if not any(word in str(error.java_exception.toString()) for word in _MISSING):
        return f"{what} {location} can't be reached: {reason}"
    hadoop = str(jvm.org.apache.hadoop.util.VersionInfo.getVersion())
    advice = _CONNECTORS.get(scheme, "add the jar of its connector to spark.jars").format(hadoop=hadoop)
    return f"{what} {location} can't be reached: the session has no connector for {scheme}; {advice}"
