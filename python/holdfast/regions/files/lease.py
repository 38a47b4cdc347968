"""Leases on folders of file systems that have no locks, such as HDFS and object stores.

The name of a lease file is a number. Its holder rewrites the file every few seconds. Another
process takes the folder by creating the file with the next number, which only one of several can
do. It does so only if the holder gave the lease back, if the holder was a process of this machine
that is gone, or if the file did not change while it was watched for `EXPIRY_S`. No clocks of two
machines are compared.

A machine may pause, so that others take its live process for dead. This holder must not write
anything that others would continue from. If the file system renames files, the holder writes
through a folder of its own next to the lease. Its successor first deletes that folder, so that no
write that began there can end. That costs no request. On other file systems the holder lists the
leases before it writes.
"""

from __future__ import annotations

import json
import logging
import os
import re
import secrets
import socket
import threading
import time
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, Self

from holdfast.files.reached import HadoopPath
from holdfast.regions.base.errors import FolderInUseError, FolderLostError

LOG: Final = logging.getLogger(__name__)

#: Seconds between two renewals.
RENEWAL_S: Final = 5.0

#: Seconds without a renewal after which a holder counts as dead; it may miss a few renewals.
EXPIRY_S: Final = 30.0

#: Seconds between two looks at a lease that may expire.
WATCH_S: Final = 1.0

_NUMBER: Final = re.compile(r"[0-9a-f]{16}", re.ASCII)

#: Ends the name of the folder through which the holder of a lease writes.
_THROUGH: Final = ".through"


class FolderLease:
    """A folder that this process holds; see `take_lease`.

    `path` is the lease file, `holder` its content without the renewals.
    """

    def __init__(self, folder: HadoopPath, path: HadoopPath, holder: dict[str, Any]) -> None:
        self.folder = folder
        self._path = path
        self._holder = holder
        self._process = os.getpid()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self._renewals = 0
        self._through = _through(path) if path.writes_through else None
        self._written = -RENEWAL_S
        self._thread = threading.Thread(
            target=self._renew_again, name="holdfast-lease", daemon=True
        )
        self._thread.start()

    def require_held(self) -> None:
        """Raise a `FolderLostError` if another process has taken the folder over."""
        newest = _newest(self._path.parent)
        if newest != self._path:
            raise FolderLostError(self.folder, described(_read(newest)))

    def write(self, target: HadoopPath, content: bytes, *, replace: bool = False) -> None:
        """Write a file that others would continue from, whole and durable or not at all.

        Raises the errors of `CheckpointFolders.publish`; `replace` allows an existing file.
        """
        if self._through is None:
            self.require_held()
            if replace:
                target.write_bytes(content)
            else:
                target.create(content)
            return
        try:
            self._through.write_through(target, content, replace=replace)
        except OSError:
            self.require_held()
            raise
        # Others see that the time of the folder has changed.
        self._written = time.monotonic()

    def note_pipeline(self, pipeline: str) -> None:
        """Write into the lease which pipeline holds the folder, for the errors of others."""
        self._holder["pipeline"] = pipeline
        self._tell()

    def close(self) -> None:
        """Give the folder back; may be repeated. Without effect in a child process."""
        if self._ended.is_set() or os.getpid() != self._process:
            return
        self._ended.set()
        self._thread.join()
        # A lease that cannot be given back expires. py4j has its own errors for a lost JVM.
        with suppress(Exception):
            self._tell(released=True)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *raised: object) -> None:
        self.close()

    def _renew_again(self) -> None:
        while not self._ended.wait(RENEWAL_S):
            try:
                self._renew()
            except FolderLostError as e:
                LOG.error("%s", e)
                return
            except Exception as e:
                LOG.warning("the lease on %s was not renewed: %s", self.folder, e)

    def _renew(self) -> None:
        if self._through is None:
            self._tell()
        elif time.monotonic() - self._written >= RENEWAL_S:
            try:
                self._through.touch()
            except OSError:
                self.require_held()
                raise

    def _tell(self, *, released: bool = False) -> None:
        with self._lock:
            self._renewals += 1
            content = _encoded(self._holder, self._renewals, released=released)
            self.write(self._path, content, replace=True)


def take_lease(folder: HadoopPath, leases: HadoopPath) -> FolderLease:
    """Take a folder for this process; waits while another one may have it.

    Raises a FolderInUseError if another process, or another pipeline of this one, has it.
    """
    holder = _this_process()
    while True:
        newest = _newest(leases)
        number = -1 if newest is None else int(newest.name, 16)
        if newest is not None:
            _wait_until_free(folder, newest)
        path = leases / f"{number + 1:016x}"
        if path.writes_through:
            # Make the folder before the lease and never again: if this process pauses in between,
            # a successor may have deleted the folder.
            _through(path).make_folder(exist_ok=True)
        try:
            path.create(_encoded(holder, 0, released=False))
        except FileExistsError:
            continue
        if _newest(leases) != path:
            # This process paused, and a successor came.
            _remove(path)
            continue
        _end_older(leases, path)
        return FolderLease(folder, path, holder)


def require_free(folder: HadoopPath, leases: HadoopPath) -> None:
    """Check that no process has a folder, without taking it; waits as `take_lease` does."""
    seen = None
    while (newest := _newest(leases)) is not None and newest != seen:
        _wait_until_free(folder, newest)
        seen = newest


def remove_leases(leases: HadoopPath) -> None:
    """Remove the leases on a folder that is released."""
    for path in _all(leases):
        path.unlink(missing_ok=True)
    for through in _all(leases, _THROUGH):
        through.remove_tree()
    with suppress(OSError):
        leases.rmdir()


def _through(path: HadoopPath) -> HadoopPath:
    """Return the folder through which the holder of a lease writes."""
    return path.with_name(path.name + _THROUGH)


def _end_older(leases: HadoopPath, path: HadoopPath) -> None:
    """End all writes of the holders of older leases."""
    try:
        for through in _all(leases, _THROUGH):
            if through < _through(path):
                through.remove_tree()
    except BaseException:
        _remove(path)
        raise
    for older in _all(leases):
        if older < path:
            # The next holder tries again; only the newest lease counts.
            with suppress(OSError):
                older.unlink(missing_ok=True)


def _remove(path: HadoopPath) -> None:
    """Remove a lease under which nothing was written."""
    for gone in (_through(path), path):
        with suppress(OSError):
            gone.remove_tree()


def _wait_until_free(folder: HadoopPath, path: HadoopPath) -> None:
    """Watch a lease until it is given back or expires; fail if its holder lives."""
    before = _read(path)
    written = _written_ms(path)
    began = time.monotonic()
    while not _is_over(before):
        if time.monotonic() - began > EXPIRY_S:
            LOG.warning("the lease on %s has expired: %s", folder, described(before))
            return
        time.sleep(WATCH_S)
        now = _read(path)
        alive = now != before or _written_ms(path) != written
        if alive and not _is_over(now):
            raise FolderInUseError(folder, described(now))
        before = now


def _is_over(content: bytes) -> bool:
    """Return whether a lease was given back, or its holder was a local process that is gone."""
    found = _decoded(content)
    if found.get("released") or not content:
        return True
    here = _this_process()
    if found.get("host") != here["host"] or found.get("boot") != here["boot"]:
        return False
    return _started(int(found.get("process", 0))) != found.get("started")


def _this_process() -> dict[str, Any]:
    process = os.getpid()
    return {
        "host": socket.gethostname(),
        "boot": _boot(),
        "process": process,
        "started": _started(process),
        "nonce": secrets.token_hex(8),
    }


def _boot() -> str:
    """Return a text that tells this run of the machine, and of its container, from others."""
    with suppress(OSError):
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip() + str(
            os.stat("/proc/self/ns/pid").st_ino
        )
    return ""


def _started(process: int) -> str:
    """Return when a process of this machine began; empty if there is none."""
    with suppress(OSError):
        # The name before it may have blanks and brackets.
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[19]
    return ""


def _newest(leases: HadoopPath) -> HadoopPath | None:
    return max(_all(leases), default=None)


def _all(leases: HadoopPath, suffix: str = "") -> list[HadoopPath]:
    """Return all leases, or all folders of leases that have this suffix."""
    try:
        found = list(leases.iterdir())
    except FileNotFoundError:
        return []
    return [
        path
        for path in found
        if path.name.endswith(suffix) and _NUMBER.fullmatch(path.name.removesuffix(suffix))
    ]


def _written_ms(path: HadoopPath) -> int | None:
    """Return when the holder of a lease last wrote through its folder; None if unknown."""
    with suppress(FileNotFoundError):
        return _through(path).status().modified_ms
    return None


def _read(path: HadoopPath | None) -> bytes:
    """Return the content of a lease; nothing if a successor deleted it."""
    with suppress(FileNotFoundError):
        return b"" if path is None else path.read_bytes()
    return b""


def _encoded(holder: dict[str, Any], renewals: int, *, released: bool) -> bytes:
    return json.dumps({**holder, "renewals": renewals, "released": released}).encode()


def _decoded(content: bytes) -> dict[str, Any]:
    with suppress(ValueError):
        found = json.loads(content)
        if isinstance(found, dict):
            return found
    return {}


def described(content: bytes) -> str:
    """Say who holds a folder, from the content of its lock or lease; empty if unknown."""
    if not (found := _decoded(content)):
        return ""
    host = f" on {found['host']}" if "host" in found else ""
    process = f", in process {found['process']}{host}" if "process" in found else ""
    return f"pipeline {str(found.get('pipeline', '?'))!r} is open already{process}"
