"""Paths on file systems that only the JVM reaches: ``hdfs:``, ``s3a:`` and all others of Hadoop.

`HadoopPath` has the methods of `pathlib.Path` that a pipeline's driver uses, with the same
exceptions. Each calls ``io.holdfast.spark.PipelineFiles`` in the driver's JVM, with the credentials
and schemes of the user's Spark. A change is durable when a method returns without an error, and a
file appears whole.
"""

from __future__ import annotations

import errno
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, ClassVar, Final, TypeVar

from holdfast._core import CorruptSegmentError, FencedError, NewerFormatError
from holdfast._sessions import require_jar

T = TypeVar("T")

#: Error numbers of Java's exceptions. All others are plain errors of the file system.
_ERRNO: Final = {
    "java.io.FileNotFoundException": errno.ENOENT,
    "java.nio.file.NoSuchFileException": errno.ENOENT,
    "io.holdfast.spark.MissingStateException": errno.ENOENT,
    "org.apache.hadoop.fs.FileAlreadyExistsException": errno.EEXIST,
    "org.apache.hadoop.fs.PathIsNotEmptyDirectoryException": errno.ENOTEMPTY,
    "org.apache.hadoop.fs.ParentNotDirectoryException": errno.ENOTDIR,
    "org.apache.hadoop.security.AccessControlException": errno.EACCES,
    "java.nio.file.AccessDeniedException": errno.EACCES,
}

_KINDS: Final[dict[str, type[Exception]]] = {
    "io.holdfast.spark.DamagedStateException": CorruptSegmentError,
    "io.holdfast.spark.NewerFormatException": NewerFormatError,
    "io.holdfast.spark.UnsupportedStateException": NotImplementedError,
    "io.holdfast.spark.FencedException": FencedError,
}


@dataclass(frozen=True)
class Status:
    """Status of a name in a file system; sizes in bytes, times in milliseconds since 1970.

    Attributes
    ----------
    is_folder : bool
        On object stores, True if there are objects below it.
    is_other : bool, default False
        True if it is neither a folder nor a file, such as a symbolic link.
    """

    is_folder: bool
    st_size: int
    modified_ms: int
    is_other: bool = False

    @property
    def is_file(self) -> bool:
        """True if it is a file."""
        return not (self.is_folder or self.is_other)


@dataclass(frozen=True, order=True)
class HadoopPath:
    """A file or folder, by its URI: scheme, authority and absolute path."""

    uri: str

    #: True if a file can be written in several steps.
    appends: ClassVar = False
    #: The path for this process; it has none.
    local: ClassVar = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "uri", self.uri.rstrip("/"))

    # --- names ----------------------------------------------------------------------------------

    def __str__(self) -> str:
        return self.uri

    def __truediv__(self, name: str | os.PathLike[str]) -> HadoopPath:
        return HadoopPath(f"{self.uri}/{os.fspath(name)}")

    @property
    def name(self) -> str:
        """The last part of it."""
        return self.uri.rpartition("/")[2]

    @property
    def parent(self) -> HadoopPath:
        """The folder that it is in."""
        return HadoopPath(self.uri.rpartition("/")[0])

    def with_name(self, name: str) -> HadoopPath:
        """Return another name in the same folder."""
        return self.parent / name

    def lies_in(self, other: object) -> bool:
        """Return whether the other path is the same, or a folder above it."""
        return isinstance(other, HadoopPath) and f"{self.uri}/".startswith(f"{other.uri}/")

    @property
    def spark_name(self) -> str:
        """The path for Spark."""
        return self.uri

    # --- looking --------------------------------------------------------------------------------

    def _status(self) -> Status | None:
        found = call_jvm("looking at", self, lambda files: files.status(self.uri))
        return None if found is None else _status(found.split(" "))

    def status(self) -> Status:
        """Return the status of the name."""
        found = self._status()
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.uri)
        return found

    def exists(self) -> bool:
        """Return whether there is something of this name."""
        return self._status() is not None

    def is_dir(self) -> bool:
        """Return whether it is a folder."""
        found = self._status()
        return found is not None and found.is_folder

    def is_file(self) -> bool:
        """Return whether it is a file."""
        found = self._status()
        return found is not None and not found.is_folder

    def is_symlink(self) -> bool:
        """Return False: Hadoop's file systems show no links."""
        return False

    def entries(self) -> list[tuple[HadoopPath, Status]]:
        """Return the content of the folder, by name."""
        lines = call_jvm("listing", self, lambda files: list(files.list(self.uri)))
        parts = (line.split(" ", 3) for line in lines)
        return [(self / name, _status(figures)) for *figures, name in parts]

    def iterdir(self) -> Iterator[HadoopPath]:
        """Yield the content of the folder, by name."""
        return iter([path for path, _ in self.entries()])

    # --- content --------------------------------------------------------------------------------

    def read_bytes(self) -> bytes:
        """Return all of a file."""
        return bytes(call_jvm("reading", self, lambda files: files.read(self.uri)))

    def read_text(self, *, errors: str = "strict") -> str:
        """Return all of a file, as UTF-8."""
        return self.read_bytes().decode(errors=errors)

    def create(self, content: bytes) -> None:
        """Write a new file, and its folder; FileExistsError if the name exists, also in a race."""
        call_jvm("creating", self, lambda files: files.create(self.uri, content))

    def create_whole(self, content: bytes) -> None:
        """Write a new file, as `create`."""
        self.create(content)

    def copy_to(self, target: str) -> None:
        """Copy a file, durably; FileExistsError if the target exists."""
        call_jvm("copying", self, lambda files: files.copy(self.uri, target))

    def write_through(self, target: HadoopPath, content: bytes, *, replace: bool) -> None:
        """Write another file, as `create` or `write_bytes`, only while this folder exists.

        Once the folder is deleted, no write under way can end. Not on object stores, see
        `writes_through`. Raises a FileNotFoundError if the folder is gone, and a FileExistsError
        if the name exists, unless `replace`.
        """
        told = (self.uri, str(target), content, replace)
        call_jvm("writing", target, lambda files: files.writeThrough(*told))

    @property
    def writes_through(self) -> bool:
        """True if `write_through` works: where files are renamed in one step."""
        return bool(call_jvm("looking at", self, lambda files: files.writesThrough(self.uri)))

    def write_bytes(self, content: bytes) -> None:
        """Write a file, or replace one: readers see the old content or the new one."""
        call_jvm("writing", self, lambda files: files.replace(self.uri, content))

    def replace_text(self, text: str, *, durable: bool = True) -> None:
        """Write a small file, as `write_bytes`; it is always durable."""
        self.write_bytes(text.encode())

    # --- changes --------------------------------------------------------------------------------

    def make_folder(self, *, exist_ok: bool = False) -> None:
        """Make a folder, with those above it; it may exist with `exist_ok`."""
        if not exist_ok and self.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self.uri)
        call_jvm("making", self, lambda files: files.makeFolder(self.uri))

    def sync(self) -> None:
        """Do nothing: names in a folder are durable."""

    def touch(self) -> None:
        """Set the time of a file or folder that exists to now; object stores cannot."""
        call_jvm("changing the time of", self, lambda files: files.touch(self.uri))

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete a file."""
        if missing_ok:
            self.parent.remove_files([self.name])
        else:
            self._delete()

    def remove_files(self, names: Sequence[str]) -> None:
        """Delete existing files here, on object stores in one request; OSError if one is left."""
        files = [str(self / name) for name in names]
        call_jvm("deleting files in", self, lambda jvm: jvm.removeAll(files))

    def rmdir(self) -> None:
        """Delete an empty folder."""
        self._delete()

    def _delete(self) -> None:
        if not call_jvm("deleting", self, lambda files: files.delete(self.uri, False)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self.uri)

    def remove_tree(self) -> None:
        """Delete a folder with its content; nothing if it is not there."""
        call_jvm("deleting", self, lambda files: files.delete(self.uri, True))

    def appear_as(self, name: str) -> None:
        """Give a folder its name, durably; an empty folder of this name is replaced."""
        target = self.with_name(name)
        with suppress(FileNotFoundError):
            target.rmdir()
        call_jvm("renaming", self, lambda files: files.renameNew(self.uri, str(target)))

    @property
    def renames(self) -> bool:
        """True if the file system renames folders in one step; object stores do not."""
        return bool(call_jvm("looking at", self, lambda files: files.renames(self.uri)))

    # --- output of a sink -------------------------------------------------------------------------

    def publish(self, files: Sequence[tuple[str, str, int]]) -> None:
        """Give staged files below this folder their final names, several at once.

        May be repeated after a crash at any moment. `files` have staged name, final name and
        bytes. Raises a FileNotFoundError if a file has neither name, and a FileExistsError if
        another file has the final name.
        """
        staged = [str(self / one) for one, _, _ in files]
        targets = [str(self / one) for _, one, _ in files]
        sizes = [size for _, _, size in files]
        call_jvm("publishing files in", self, lambda jvm: jvm.publish(staged, targets, sizes))

    def discard(self, staged: Sequence[str]) -> None:
        """Throw away staged files below this folder."""
        paths = [str(self / name) for name in staged]
        call_jvm("removing staged files in", self, lambda files: files.discard(paths))


def has_session() -> bool:
    """Return whether there is a Spark session in this process."""
    # A session has imported the module.
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None


def qualified(uri: str) -> HadoopPath:
    """Return a URI's path, by default on ``fs.defaultFS``, so that one folder has one name."""
    return HadoopPath(call_jvm("resolving", HadoopPath(uri), lambda files: str(files.qualify(uri))))


def call_jvm(doing: str, path: HadoopPath, call: Callable[[Any], T]) -> T:
    """Call ``PipelineFiles`` in the driver's JVM, with Python's errors; they name `doing`."""
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    files = _files(path)
    try:
        return call(files)
    except (Py4JJavaError, PySparkException) as e:
        raise _error(doing, path, e) from e


def native(files: Any) -> Any:
    """Return py4j's view of io.holdfast.spark.Native, in the JVM of a ``PipelineFiles``."""
    from py4j.java_gateway import JavaClass

    return JavaClass("io.holdfast.spark.Native", files._gateway_client)


def _error(doing: str, path: HadoopPath, raised: Any) -> Exception:
    thrown = getattr(raised, "java_exception", None) or getattr(raised, "_origin", None)
    if thrown is None:
        return OSError(errno.EIO, f"{doing}: {raised}", str(path))
    kind, text = str(thrown.getClass().getName()), str(thrown.getMessage())
    if kind in _KINDS:
        return _KINDS[kind](f"{doing} {path}: {text}")
    if kind == "java.lang.IllegalArgumentException":
        return ValueError(f"{doing} {path}: {text}")
    number = _ERRNO.get(kind)
    told = text if number is not None else f"{kind}: {text}"
    return OSError(number or errno.EIO, f"{doing}: {told}", str(path))


def _files(path: HadoopPath) -> Any:
    """Return py4j's view of the ``PipelineFiles`` in the JVM."""
    from pyspark import SparkContext

    context = SparkContext._active_spark_context
    if context is not None:
        return _of_context(context)
    if _OWN_JVM:
        return _OWN_JVM[-1]
    raise RuntimeError(
        f"{path} is on a file system that only Spark reaches, and there is no Spark session: begin "
        "one with holdfast.configure(SparkSession.builder).getOrCreate()"
    )


@lru_cache(maxsize=1)
def _of_context(context: Any) -> Any:
    require_jar(context)
    return context._jvm.io.holdfast.spark.PipelineFiles(context._jsc.hadoopConfiguration())


#: ``PipelineFiles`` of JVMs that run only for file systems, see `use_jvm`.
_OWN_JVM: Final[list[Any]] = []


def use_jvm(jvm: Any, configuration: Any) -> None:
    """Reach file systems by a JVM (py4j, with Holdfast's jar) and its Hadoop `configuration`."""
    _OWN_JVM.append(jvm.io.holdfast.spark.PipelineFiles(configuration))


def _status(figures: Sequence[str]) -> Status:
    kind, size, modified_ms = figures
    return Status(kind == "d", int(size), int(modified_ms))
