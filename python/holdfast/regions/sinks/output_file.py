"""A file being staged, as PyArrow writes to it."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

_CLOSED: Final = -1


def scratch_path(name: str) -> Path:
    """Return where a file may be for as long as a task needs it: in a folder that Spark cleans up.

    Parameters
    ----------
    name : str
        One that no other task uses.
    """
    # Spark tells its Python workers where its own files lie.
    folders = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    return Path(folders.partition(",")[0]) / f"holdfast-{name}"


class OutputFile:
    """A new file that either becomes durable or goes without a trace.

    Parameters
    ----------
    path : pathlib.Path
        Where to create it. There must be nothing.

    Attributes
    ----------
    path : pathlib.Path
        Where it is.

    Raises
    ------
    OSError
        If the file system refuses.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = os.open(path, flags, 0o666)

    @property
    def closed(self) -> bool:
        """False, also after the end: see `write`."""
        return False

    def write(self, data: bytes) -> int:
        """Write all of the bytes.

        After the end they go nowhere: an encoder that is given up writes when it is collected.
        """
        rest = memoryview(data)
        while self._descriptor != _CLOSED and rest:
            rest = rest[os.write(self._descriptor, rest) :]
        return len(data)

    def flush(self) -> None:
        """Do nothing: nothing is kept back."""

    def close(self) -> None:
        """Do nothing: what ends the file is `persist` or `drop`, and not that PyArrow is done."""

    def size(self) -> int:
        """Return how many bytes were written."""
        return os.fstat(self._descriptor).st_size

    def persist(self) -> None:
        """Make the content durable and close the file.

        The descriptor stays open until then, because the system may not report to
        one that was opened later that an earlier write failed.
        """
        os.fsync(self._descriptor)
        self._close()

    def drop(self) -> None:
        """Close and remove the file; again and again, if need be."""
        self._close()
        # What cannot be removed now is swept up later.
        with suppress(OSError):
            self.path.unlink()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)
