"""Folders as users give them: of checkpoints, of a source's files, of a sink's output."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Final

_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.-]*):")


def local_folder(path: str | os.PathLike[str]) -> Path:
    """Return the absolute path of a folder, symbolic links resolved.

    Regional pipelines use file systems that are mounted, on the driver and on all executors.

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
                f"{text!r} is not allowed: folders of regional pipelines lie on a file system that "
                "is mounted on driver and executors; expected a path, or the scheme 'file', found "
                f"the scheme {scheme[1]!r}"
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
