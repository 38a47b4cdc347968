"""Leases of readers: a clean-up of the query deletes nothing that an open reader needs."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final
from weakref import finalize

from holdfast.files.arrow_paths import ReadPath
from holdfast.queries.folder import STATE_FILES_FOLDER
from holdfast.queries.leases import READER, Lease, leases_folder

#: Seconds until the lease of a reader that died ends. One that lives renews it in time.
EXPIRY_S: Final = 3600


class ReaderLease:
    """Keeps a batch while it is referenced, if this user may write to the folder of leases.

    Look whether the batch is retained after this was made, and after each renewal.
    """

    def __init__(self, folder: ReadPath, batch: int, stores: list[tuple[int, int, str]]) -> None:
        self._folder = leases_folder(folder)
        self._batch, self._stores = batch, stores
        self._renew_s = float("inf")
        self._end: Callable[[], object] | None = None
        if _is_own(folder / STATE_FILES_FOLDER) or self._folder.is_dir():
            self._write()

    def renew(self) -> bool:
        """Write the lease again if it is time for that; returns whether it was."""
        is_due = time.monotonic() >= self._renew_s
        if is_due:
            self._write()
        return is_due

    def _write(self) -> None:
        expires_ms = time.time_ns() // 1_000_000 + EXPIRY_S * 1000
        lease = Lease(batch=self._batch, stores=self._stores, expires_ms=expires_ms)
        file = self._folder / f"{READER}{lease.id}.lease"
        self._renew_s = time.monotonic() + EXPIRY_S / 2
        # The reader may have no right to write, or a file system that only reads.
        with suppress(OSError, NotImplementedError):
            try:
                file.create(lease.to_bytes())
            except FileNotFoundError:
                self._folder.make_folder(exist_ok=True)
                file.create(lease.to_bytes())
            before, self._end = self._end, finalize(self, _remove, file)
            if before is not None:
                before()


def _remove(file: ReadPath) -> None:
    with suppress(OSError):
        file.unlink(missing_ok=True)


def _is_own(folder: ReadPath) -> bool:
    """Return whether a new folder in there is not one of another user than the query's."""
    local = getattr(folder, "local", None)
    return local is None or local.stat().st_uid == os.getuid()
