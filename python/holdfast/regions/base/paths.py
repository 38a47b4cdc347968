"""Folders as users give them: of checkpoints, of a source's files, of a sink's output."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

from holdfast.regions.base.hadoop_path import HadoopPath, has_session, qualified

#: A folder on a file system that is mounted, or on one that only the JVM reaches.
AnyPath = Path | HadoopPath

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def any_folder(path: str | os.PathLike[str] | HadoopPath) -> AnyPath:
    """Return the absolute path of a folder on any file system that Spark reaches.

    Parameters
    ----------
    path : str or os.PathLike
        As a string a URI such as ``hdfs://namenode/checkpoints`` or ``s3a://bucket/checkpoints``;
        one without a scheme is a path of Spark's default file system (``fs.defaultFS``), as it is
        for Spark itself, or without a Spark session one of a file system that is mounted. A
        `pathlib.Path` is always mounted.

    Raises
    ------
    ValueError
        If the path is empty, or no file system has this scheme.
    RuntimeError
        If only the JVM reaches the file system, and there is no Spark session.
    """
    if isinstance(path, HadoopPath):
        return path
    if not isinstance(path, str) or not path:
        return local_folder(path)
    scheme = _SCHEME.match(path)
    if scheme is None:
        is_local = not has_session() or qualified("/").is_mounted
    else:
        is_local = scheme[1].lower() == "file"
    return local_folder(path) if is_local else qualified(path)


def owned_folder(location: str | os.PathLike[str]) -> AnyPath:
    """Return the folder that a sink says is its own: an absolute path is mounted."""
    text = os.fspath(location)
    return any_folder(Path(text) if text.startswith("/") else location)


def recorded_folder(location: str) -> AnyPath:
    """Return a folder by the text that `str` made of its path."""
    return Path(location) if location.startswith("/") else HadoopPath(location)


def spark_name(path: AnyPath) -> str:
    """Return the path for Spark, to which one without a scheme is of its default file system."""
    return str(path) if isinstance(path, HadoopPath) else f"file:{path}"


def local_folder(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a folder, symbolic links resolved.

    For what has to be on a file system that is mounted, on the driver and on all executors.

    Parameters
    ----------
    path : str or os.PathLike
        A path, or as a string also a URI ``file:/...`` or ``file:///...``. As in Spark, nothing
        in the URI is unescaped.

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
    # Two names of one folder are one folder: whether two overlap is asked before one is deleted.
    return Path(text).resolve()


def is_there(path: AnyPath) -> bool:
    """Say whether a name is taken, also by a symbolic link that leads nowhere."""
    return path.exists() if isinstance(path, HadoopPath) else os.path.lexists(path)


def entries(folder: AnyPath) -> list[AnyPath]:
    """Return what is in a folder, by name.

    Raises
    ------
    FileNotFoundError, NotADirectoryError
        If there is no such folder.
    """
    if isinstance(folder, HadoopPath):
        return list(folder.iterdir())
    return sorted(folder.iterdir(), key=lambda path: path.name)
