"""Paths on file systems that only the JVM reaches: ``hdfs:``, ``s3a:`` and all others of Hadoop's.

`HadoopPath` has those methods of `pathlib.Path` that the driver of a pipeline uses, with the same
exceptions. Each goes through ``io.holdfast.spark.PipelineFiles`` in the driver's JVM, so that
credentials and schemes are those of the user's Spark. What returns without an error is durable, and
a file that is written appears whole.
"""

from __future__ import annotations

import errno
import io
import os
import posixpath
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import lru_cache
from typing import Any, Final, TypeVar

from holdfast._core import CorruptSegmentError, FencedError

T = TypeVar("T")

#: Exceptions of Java, and what they are here. Others are plain errors of the file system.
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
    "io.holdfast.spark.UnsupportedStateException": NotImplementedError,
    "io.holdfast.spark.FencedException": FencedError,
}


@dataclass(frozen=True)
class Status:
    """What a file system says of a name.

    Attributes
    ----------
    is_folder : bool
        Whether it is a folder; on object stores, whether objects lie below it.
    st_size : int
        Size of a file in bytes.
    modified_ms : int
        When it changed, in milliseconds since 1970.
    """

    is_folder: bool
    st_size: int
    modified_ms: int


class HadoopPath:
    """A file or folder, by its URI.

    Parameters
    ----------
    uri : str
        Scheme, authority and absolute path.
    """

    __slots__ = ("_uri",)

    def __init__(self, uri: str) -> None:
        self._uri = uri.rstrip("/")

    # --- names ----------------------------------------------------------------------------------

    def __str__(self) -> str:
        return self._uri

    def __repr__(self) -> str:
        return f"HadoopPath({self._uri!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HadoopPath) and other._uri == self._uri

    def __lt__(self, other: HadoopPath) -> bool:
        return self._uri < other._uri

    def __hash__(self) -> int:
        return hash(self._uri)

    def __reduce__(self) -> tuple[type[HadoopPath], tuple[str]]:
        return HadoopPath, (self._uri,)

    def __truediv__(self, name: str | os.PathLike[str]) -> HadoopPath:
        return HadoopPath(f"{self._uri}/{os.fspath(name)}")

    @property
    def name(self) -> str:
        """The last part of it."""
        return self._uri.rpartition("/")[2]

    @property
    def parent(self) -> HadoopPath:
        """The folder that it is in."""
        return HadoopPath(self._uri.rpartition("/")[0])

    def with_name(self, name: str) -> HadoopPath:
        """Return another name in the same folder."""
        return self.parent / name

    def with_suffix(self, suffix: str) -> HadoopPath:
        """Return the path with its suffix, if it has one, replaced."""
        return self.with_name(posixpath.splitext(self.name)[0] + suffix)

    def is_relative_to(self, other: object) -> bool:
        """Whether it is another path, or below that."""
        return isinstance(other, HadoopPath) and f"{self._uri}/".startswith(f"{other._uri}/")

    @property
    def is_mounted(self) -> bool:
        """Whether it needs no JVM: its scheme is ``file``."""
        return self._uri.startswith("file:")

    def path_below(self, folder: HadoopPath) -> str:
        """Return the names from a folder down to this path, with slashes."""
        return self._uri.removeprefix(f"{folder._uri}/")

    # --- looking --------------------------------------------------------------------------------

    def _status(self) -> Status | None:
        found = call_jvm("looking at", self, lambda files: files.status(self._uri))
        return None if found is None else _status(found.split(" "))

    def stat(self) -> Status:
        """Return what the file system says of it.

        Raises
        ------
        FileNotFoundError
            If there is nothing of this name.
        """
        found = self._status()
        if found is None:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._uri)
        return found

    def exists(self) -> bool:
        """Whether there is something of this name."""
        return self._status() is not None

    def is_dir(self) -> bool:
        """Whether it is a folder."""
        found = self._status()
        return found is not None and found.is_folder

    def is_file(self) -> bool:
        """Whether it is a file."""
        found = self._status()
        return found is not None and not found.is_folder

    def is_symlink(self) -> bool:
        """Return False: Hadoop's file systems show no links."""
        return False

    def entries(self) -> list[tuple[HadoopPath, Status]]:
        """Return what is in the folder, by name.

        Raises
        ------
        FileNotFoundError
            If there is none.
        """
        lines = call_jvm("listing", self, lambda files: list(files.list(self._uri)))
        parts = (line.split(" ", 3) for line in lines)
        return [(self / name, _status(figures)) for *figures, name in parts]

    def iterdir(self) -> Iterator[HadoopPath]:
        """Yield what is in the folder, by name."""
        return iter([path for path, _ in self.entries()])

    def glob(self, pattern: str) -> Iterator[HadoopPath]:
        """Yield what has a name of this form; nothing if there is no such folder.

        Parameters
        ----------
        pattern : str
            Names with ``*``, with slashes between those of folders.
        """
        name, _, rest = pattern.partition("/")
        try:
            found = self.entries()
        except FileNotFoundError:
            return
        for path, status in found:
            if fnmatchcase(path.name, name):
                if not rest:
                    yield path
                elif status.is_folder:
                    yield from path.glob(rest)

    # --- content --------------------------------------------------------------------------------

    def read_bytes(self) -> bytes:
        """Return all of a file."""
        return bytes(call_jvm("reading", self, lambda files: files.read(self._uri)))

    def read_text(self, *, errors: str = "strict") -> str:
        """Return all of a file, as UTF-8."""
        return self.read_bytes().decode(errors=errors)

    def open(self, mode: str) -> io.BytesIO:
        """Return the content of a file, as one that is open for reading."""
        if mode != "rb":
            raise ValueError(f"mode={mode!r} is not allowed: expected 'rb'")
        return io.BytesIO(self.read_bytes())

    def create(self, content: bytes) -> None:
        """Write a new file; its folder is made if it is not there.

        Raises
        ------
        FileExistsError
            If the name is taken. Nothing is overwritten, also by two processes at once.
        """
        call_jvm("creating", self, lambda files: files.create(self._uri, content))

    def write_through(self, target: HadoopPath, content: bytes, *, replace: bool) -> None:
        """Write another file, as `create` or `write_bytes`, as long as this folder is there.

        Once it is deleted, no such write that is under way can end. Not on object stores, see
        `writes_through`.

        Raises
        ------
        FileNotFoundError
            If the folder is gone.
        FileExistsError
            If the name is taken, unless `replace`.
        """
        call_jvm(
            "writing",
            target,
            lambda files: files.writeThrough(self._uri, str(target), content, replace),
        )

    @property
    def writes_through(self) -> bool:
        """Whether `write_through` is there: where files are renamed in one step."""
        return bool(call_jvm("looking at", self, lambda files: files.writesThrough(self._uri)))

    def write_bytes(self, content: bytes) -> None:
        """Write a file, in place of one that is there: readers see one of the two."""
        call_jvm("writing", self, lambda files: files.replace(self._uri, content))

    def write_text(self, text: str) -> None:
        """Write a file, as `write_bytes`, in UTF-8."""
        self.write_bytes(text.encode())

    # --- changes --------------------------------------------------------------------------------

    def mkdir(self, *, parents: bool = False, exist_ok: bool = False) -> None:
        """Make a folder, with those above it.

        Raises
        ------
        FileExistsError
            If the name is taken, by a folder only without `exist_ok`.
        """
        if not exist_ok and self.exists():
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), self._uri)
        call_jvm("making", self, lambda files: files.makeFolder(self._uri))

    def touch(self) -> None:
        """Let its time be now; it has to be there, and object stores have no such times."""
        call_jvm("changing the time of", self, lambda files: files.touch(self._uri))

    def unlink(self, *, missing_ok: bool = False) -> None:
        """Delete a file."""
        if missing_ok:
            self.parent.remove_files([self.name])
        else:
            self._delete()

    def remove_files(self, names: Sequence[str]) -> None:
        """Delete files in this folder, as far as they are there; of an object store in one request.

        Raises
        ------
        OSError
            If one is not deleted. Others may be.
        """
        files = [str(self / name) for name in names]
        call_jvm("deleting files in", self, lambda jvm: jvm.removeAll(files))

    def rmdir(self) -> None:
        """Delete an empty folder.

        Raises
        ------
        OSError
            If something is in it.
        """
        self._delete()

    def _delete(self) -> None:
        if not call_jvm("deleting", self, lambda files: files.delete(self._uri, False)):
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), self._uri)

    def remove_tree(self) -> None:
        """Delete a folder with all that is below it; nothing if it is not there."""
        call_jvm("deleting", self, lambda files: files.delete(self._uri, True))

    def rename_new(self, target: HadoopPath) -> None:
        """Give a file or folder another name.

        Raises
        ------
        FileExistsError
            If that is taken.
        """
        call_jvm("renaming", self, lambda files: files.renameNew(self._uri, str(target)))

    @property
    def renames(self) -> bool:
        """Whether the file system renames folders in one step; object stores do not."""
        return bool(call_jvm("looking at", self, lambda files: files.renames(self._uri)))

    # --- output of a sink -------------------------------------------------------------------------

    def publish(self, files: Sequence[tuple[HadoopPath, HadoopPath, int]]) -> None:
        """Give staged files below this folder their final names, several at once.

        May be repeated after a crash at any moment.

        Parameters
        ----------
        files : sequence of (HadoopPath, HadoopPath, int)
            Staged name, final name and size in bytes.

        Raises
        ------
        FileNotFoundError
            If a file has neither name.
        FileExistsError
            If another file has the final name.
        """
        staged = [str(one) for one, _, _ in files]
        targets = [str(one) for _, one, _ in files]
        sizes = [size for _, _, size in files]
        call_jvm("publishing files in", self, lambda jvm: jvm.publish(staged, targets, sizes))

    def discard(self, staged: Sequence[HadoopPath]) -> None:
        """Throw away staged files below this folder."""
        call_jvm(
            "removing staged files in", self, lambda files: files.discard(list(map(str, staged)))
        )


def has_session() -> bool:
    """Whether there is a Spark session in this process."""
    # Whoever has one has imported its module; those without Spark need not wait for that.
    pyspark = sys.modules.get("pyspark")
    return pyspark is not None and pyspark.SparkContext._active_spark_context is not None


def qualified(uri: str) -> HadoopPath:
    """Return the path of a URI as its file system writes it, so that one folder has one name.

    Without a scheme it is one of Spark's default file system.

    Raises
    ------
    ValueError
        If Hadoop has no file system of this scheme.
    OSError
        If that cannot be reached.
    RuntimeError
        If there is no JVM to ask: no Spark session was begun.
    """
    return HadoopPath(call_jvm("resolving", HadoopPath(uri), lambda files: str(files.qualify(uri))))


def call_jvm(doing: str, path: HadoopPath, call: Callable[[Any], T]) -> T:
    """Make a call that concerns a path into the driver's JVM.

    Parameters
    ----------
    doing : str
        What is done, for errors.
    path : HadoopPath
        What it is done with.
    call : callable
        Takes the ``PipelineFiles``.

    Raises
    ------
    OSError, ValueError, NotImplementedError
        What Java raised.
    RuntimeError
        If there is no JVM.
    """
    from py4j.protocol import Py4JJavaError
    from pyspark.errors import PySparkException

    files = _files(path)
    try:
        return call(files)
    except (Py4JJavaError, PySparkException) as e:
        raise _error(doing, path, e) from e


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
    return context._jvm.io.holdfast.spark.PipelineFiles(context._jsc.hadoopConfiguration())


#: ``PipelineFiles`` of JVMs that were begun for file systems alone, see `use_jvm`.
_OWN_JVM: Final[list[Any]] = []


def use_jvm(jvm: Any, configuration: Any) -> None:
    """Reach file systems through a JVM without a Spark session.

    Parameters
    ----------
    jvm
        py4j's view of it; Holdfast's jar is in its class path.
    configuration
        Its Hadoop ``Configuration``.
    """
    _OWN_JVM.append(jvm.io.holdfast.spark.PipelineFiles(configuration))


def _status(figures: Sequence[str]) -> Status:
    kind, size, modified_ms = figures
    return Status(kind == "d", int(size), int(modified_ms))
