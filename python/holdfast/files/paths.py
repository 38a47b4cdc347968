"""Folders that users give: for checkpoints, a source's files or a sink's output."""

from __future__ import annotations

import os
import re
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from holdfast.files.mounted import MountedPath
from holdfast.files.reached import HadoopPath, Status, has_session, qualified

#: A path on a file system that is mounted, or that only the JVM reaches, with the same operations.
AnyPath = MountedPath | HadoopPath

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")
#: A text that is no path.
URI: Final = re.compile(f"{_SCHEME.pattern}/")


def any_folder(path: str | os.PathLike[str] | HadoopPath) -> AnyPath:
    """Return the absolute path of a folder on any file system that Spark reaches.

    Parameters
    ----------
    path : str or os.PathLike
        A string may be a URI such as ``hdfs://namenode/checkpoints`` or
        ``s3a://bucket/checkpoints``. A string without a scheme is a path of Spark's default file
        system (``fs.defaultFS``), or of a mounted one if there is no Spark session. A
        `pathlib.Path` is always mounted.

    Raises
    ------
    ValueError
        If the path is empty, or no file system has this scheme.
    RuntimeError
        If only the JVM reaches the file system, and there is no Spark session.
    """
    if isinstance(path, AnyPath):
        return path
    if not isinstance(path, str) or not path:
        return local_folder(path)
    scheme = _SCHEME.match(path)
    if scheme is None:
        is_local = not has_session() or str(qualified("/")).startswith("file:")
    else:
        is_local = scheme[1].lower() == "file"
    return local_folder(path) if is_local else qualified(path)


def is_remote_uri(text: str) -> bool:
    """Return whether a text is a URI of a file system that is not mounted."""
    uri = URI.match(text)
    return uri is not None and uri[1].lower() != "file"


def absolute(path: AnyPath) -> AnyPath:
    """Return the path from the root: a mounted one may begin in the folder of this process."""
    return path.absolute() if isinstance(path, MountedPath) else path


def owned_folder(location: str | os.PathLike[str]) -> AnyPath:
    """Return the folder that a sink names as its own: an absolute path is mounted."""
    text = os.fspath(location)
    return any_folder(Path(text) if text.startswith("/") else location)


def recorded_folder(location: str) -> AnyPath:
    """Return a folder by `str` of its path."""
    return MountedPath(location) if location.startswith("/") else HadoopPath(location)


def local_folder(path: str | os.PathLike[str]) -> MountedPath:
    """Return the absolute path of a folder on a mounted file system, symbolic links resolved.

    Parameters
    ----------
    path : str or os.PathLike
        A path, or as a string also a URI ``file:/...`` or ``file:///...``. Nothing in the URI is
        unescaped, as in Spark.

    Raises
    ------
    ValueError
        If the path is empty, of another scheme than ``file``, or of another host.
    """
    text = os.fspath(path)
    scheme = _SCHEME.match(text) if isinstance(path, str) else None
    if scheme is not None:
        if scheme[1].lower() != "file":
            raise ValueError(
                f"{text!r} is not allowed: this folder lies on a file system that is mounted on "
                "driver and executors; expected a path, or the scheme 'file', found the scheme "
                f"{scheme[1]!r}"
            )
        text = text[scheme.end() :]
        if text.startswith("//"):
            host, slash, rest = text[2:].partition("/")
            if host not in ("", "localhost"):
                raise ValueError(f"{path!r} is not allowed: expected no host, found {host!r}")
            text = slash + rest
        if not text.startswith("/"):
            raise ValueError(f"{path!r} is not allowed: expected an absolute path in a URI")
    if not text:
        raise ValueError("'' is not allowed: expected the path of a folder")
    # Callers compare folders before they delete one, so a folder must have one name.
    return MountedPath(text).resolve()


def require_nameable(folder: AnyPath, jvm: Any) -> None:
    """Raise a ValueError unless a JVM can name a folder: its locale encodes mounted paths."""
    if folder.local is None:
        return
    name = str(folder)
    encoding = str(jvm.java.lang.System.getProperty("sun.jnu.encoding"))
    if any("\ud800" <= character <= "\udfff" for character in name):
        raise ValueError(f"the JVM of Spark cannot name {name!r}: it is not in UTF-8. Rename it")
    try:
        name.encode(encoding)
    except LookupError:
        return
    except UnicodeEncodeError:
        raise ValueError(
            f"the JVM of Spark cannot name {name!r}: it runs in a locale whose encoding is "
            f"{encoding}. Start the application with LC_ALL=C.UTF-8 in the environment of the "
            "driver, and with spark.executorEnv.LC_ALL=C.UTF-8, or use a path of ASCII characters"
        ) from None


def listed(folder: AnyPath) -> list[AnyPath]:
    """Return the content of a folder, by name; nothing if there is no such folder."""
    found: list[AnyPath] = []
    with suppress(FileNotFoundError, NotADirectoryError):
        found += folder.iterdir()
    return sorted(found, key=lambda path: path.name)


def listed_with_status(folder: AnyPath) -> Sequence[tuple[AnyPath, Status]]:
    """Return the content of a folder, as `listed`, with the status of each entry."""
    with suppress(FileNotFoundError, NotADirectoryError):
        return folder.entries()
    return ()
