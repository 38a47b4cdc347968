"""A file being staged, as PyArrow writes to it."""

from __future__ import annotations

import os
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Final

from holdfast.files.modes import create

_CLOSED: Final = -1


def scratch_path(name: str) -> Path:
    """Return a path for a file of a task, in a folder that Spark cleans up.

    No other task uses the name.
    """
    # Spark tells its Python workers the folders of its own files.
    folders = os.environ.get("SPARK_LOCAL_DIRS") or tempfile.gettempdir()
    return Path(folders.partition(",")[0]) / f"holdfast-{name}"


class OutputFile:
    """A new file that either becomes durable or goes without a trace."""

    def __init__(self, path: Path) -> None:
        self.path = path
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self._descriptor = create(path, flags)

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
        """Do nothing: there is no buffer."""

    def close(self) -> None:
        """Do nothing: `persist` or `drop` ends the file, and not PyArrow."""

    def size(self) -> int:
        """Return how many bytes were written."""
        return os.fstat(self._descriptor).st_size

    def persist(self) -> None:
        """Make the content durable and close the file.

        The descriptor stays open until then: the system may not tell a later one that an earlier
        write failed.
        """
        os.fsync(self._descriptor)
        self._close()

    def drop(self) -> None:
        """Close and remove the file; again and again, if need be."""
        self._close()
        # The sweep removes a file that stays.
        with suppress(OSError):
            self.path.unlink()

    def _close(self) -> None:
        descriptor, self._descriptor = self._descriptor, _CLOSED
        if descriptor != _CLOSED:
            os.close(descriptor)
