"""Leases on the state of a query: files that keep the segments of a batch beyond those retained.

The folder of leases is beside the physical files. ``NAME.lease`` is the lease, an empty file
``NAME.ID.COPY.held`` says that it holds. A tag has a folder ``NAME.ID.COPY`` with Spark's files of
its batch. The core decides the steps of a command (rust/core/src/leases).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import Final, TypeVar, cast
from uuid import uuid4

from holdfast._core import (
    CommitId,
    CorruptSegmentError,
    SegmentRef,
    lease_from_bytes,
    lease_step,
    lease_to_bytes,
)
from holdfast.files.arrow_paths import ReadPath
from holdfast.files.paths import AnyPath, listed
from holdfast.files.segments import stored_segments
from holdfast.queries.copies import copy_batch, require_waiting
from holdfast.queries.folder import STATE_FILES_FOLDER
from holdfast.queries.logs import committed_batches, read_commit
from holdfast.queries.state import chosen_batch

P = TypeVar("P", bound=ReadPath)

#: Names of leases that are no tags begin with one of these.
BRANCH: Final = "branch-"
ROLLBACK: Final = "rollback-"
READER: Final = "reader-"
_OTHERS: Final = (BRANCH, ROLLBACK, READER)

_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")


@dataclass(frozen=True, kw_only=True)
class Lease:
    """Keeps the state of a batch: of a tag, or of something else, by its name.

    Attributes
    ----------
    id : str
        Tells the lease from others that had its name.
    branch : str or None
        The checkpoint folder of a branch.
    until, expires_ms : int or None
        It ends once this is the oldest retained batch, or at this time, in milliseconds since 1970.
    stores : sequence of (int, int, str)
        Operator, partition and id of each store, as the commit log has them.
    """

    batch: int
    stores: Sequence[tuple[int, int, str]]
    branch: str | None = None
    until: int | None = None
    expires_ms: int | None = None
    id: str = field(default_factory=lambda: uuid4().hex)
    made_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def to_bytes(self) -> bytes:
        """Return the content of its file."""
        return lease_to_bytes(json.dumps(asdict(self)))


@dataclass(frozen=True)
class FoundLease:
    """A lease in a folder.

    Attributes
    ----------
    lease : Lease or None
        None if its file is damaged, or a command was killed while it wrote the file.
    copy : str or None
        Name of the folder with Spark's files; None unless the lease holds.
    """

    name: str
    lease: Lease | None
    copy: str | None


def leases_folder(folder: P) -> P:
    """Return the folder of the leases on the state in a checkpoint."""
    return cast("P", folder / STATE_FILES_FOLDER / "leases")


def find_leases(folder: AnyPath) -> list[FoundLease]:
    """Return the leases on a checkpoint, by name."""
    names = [path.name for path in listed(leases_folder(folder))]
    leases = [name.removesuffix(".lease") for name in names if name.endswith(".lease")]
    found = (_find(folder, name, names) for name in leases)
    return [one for one in found if one is not None]


def find_lease(folder: ReadPath, name: str) -> FoundLease | None:
    """Return the lease of a name; None without one."""
    own = leases_folder(folder)
    names = [path.name for path in own.iterdir()] if own.is_dir() else []
    return _find(folder, name, names)


def held_tag(folder: P, name: str) -> tuple[P, int]:
    """Return the folder with Spark's files of a tag, and its batch.

    Raises a FileNotFoundError without a tag that holds, and a CorruptSegmentError if it is damaged.
    """
    found = find_lease(folder, name)
    if found is None or name.startswith(_OTHERS):
        raise FileNotFoundError(f"{folder}: expected a tag {name!r}, found none")
    require_whole(folder, found)
    if found.lease is None or found.copy is None:
        raise FileNotFoundError(
            f"{folder}: the tag {name!r} is not complete: repeat 'holdfast tag' for it, or remove "
            "it by 'holdfast untag'"
        )
    return cast("P", leases_folder(folder) / found.copy), found.lease.batch


def is_kept(folder: AnyPath, batch: int, tag: str | None, source: AnyPath) -> bool:
    """Return whether the commit log has a batch, or the tag that keeps it is still there."""
    if tag is None:
        return batch in committed_batches(folder)
    try:
        return held_tag(folder, tag) == (source, batch)
    except FileNotFoundError:
        return False


def require_whole(folder: ReadPath, found: FoundLease) -> None:
    """Raise a CorruptSegmentError if a lease that holds is damaged."""
    if found.lease is None and found.copy is not None:
        raise CorruptSegmentError(
            f"{leases_folder(folder) / found.name}.lease is damaged: put it back from a copy"
        )


def require_holdfasts(folder: AnyPath, batch: int) -> None:
    """Raise a NotImplementedError unless Holdfast has the state of a batch.

    Raises a FileNotFoundError if files of rows that wait were cleaned up.
    """
    stores = read_commit(folder, batch)
    if not (stores and all(CommitId.is_holdfasts(id) for _, _, id in stores)):
        raise NotImplementedError(f"{folder}: batch {batch} has no state in Holdfast")
    require_waiting(folder, batch, stores)


def require_tag_name(name: str) -> None:
    """Raise a ValueError unless a name is that of a tag."""
    if not _NAME.fullmatch(name) or name.startswith(_OTHERS) or name.isdecimal():
        raise ValueError(
            f"{name!r} is no name for a tag: expected up to 100 letters, digits, '-' and '_', no "
            f"number, and none of {[*_OTHERS]} at the beginning"
        )


def tag(folder: AnyPath, name: str, batch: int | None) -> Lease:
    """Keep the state of a batch, by default the newest. May be repeated after a crash.

    Raises a FileNotFoundError if the batch is not retained, a FileExistsError if another batch has
    the name, and a NotImplementedError if another provider has the state.
    """
    number = planned_tag(folder, name, batch)
    return take(
        Wanted(folder, name, number, lambda: read_commit(folder, number)),
        copy=lambda to: copy_batch(folder, number, leases_folder(folder) / to, commit=True),
        is_there=lambda: number in committed_batches(folder),
    )


def planned_tag(folder: AnyPath, name: str, batch: int | None) -> int:
    """Return the batch of a tag that can be made, or that a killed command began; see `tag`."""
    require_tag_name(name)
    found = find_lease(folder, name)
    if found is not None and found.lease is not None:
        is_begun = batch is None and found.copy is None
        if is_begun or found.lease.batch == batch:
            return found.lease.batch
    number = chosen_batch(folder, batch)
    require_holdfasts(folder, number)
    return number


@dataclass(frozen=True)
class Wanted:
    """A lease to make: `stores` reads the ids of the batch; `branch` and `until` as in `Lease`."""

    folder: AnyPath
    name: str
    batch: int
    stores: Callable[[], list[tuple[int, int, str]]]
    branch: str | None = None
    until: int | None = None


def take(
    wanted: Wanted,
    *,
    copy: Callable[[str], None] = lambda _: None,
    is_there: Callable[[], bool],
    is_published: Callable[[], bool] = lambda: True,
    publish: Callable[[], None] = lambda: None,
) -> Lease:
    """Take the steps that make a lease hold.

    `copy` copies Spark's files, into a folder of the leases if they are those of a tag. `is_there`
    looks whether the batch, or the tag that keeps it, is still there. `publish` lets a query begin
    with the branch.
    """
    folder, name = wanted.folder, wanted.name
    own = leases_folder(folder)
    # Facts about the lease with this id.
    of, made, retained = "", "", None
    lost: FileNotFoundError | None = None
    while True:
        found = find_lease(folder, name)
        lease = None if found is None else found.lease
        if lease is not None and lease.id != of:
            of, made, retained, lost = lease.id, "", None, None
        step = lease_step(
            same=None if found is None else _is_same(found, wanted),
            held=found is not None and found.copy is not None,
            copied=bool(made),
            retained=retained,
            published=is_published(),
        )
        match step:
            case "record":
                fresh = Lease(
                    batch=wanted.batch,
                    stores=wanted.stores(),
                    branch=wanted.branch,
                    until=wanted.until,
                )
                own.make_folder(exist_ok=True)
                # Another command may be quicker.
                with suppress(FileExistsError):
                    (own / f"{name}.lease").create_whole(fresh.to_bytes())
            case "copy":
                made = f"{name}.{of}.{uuid4().hex}"
                try:
                    copy(made)
                except FileNotFoundError as error:
                    lost = error
            case "look":
                retained = is_there()
                if retained and lost is not None:
                    raise lost
            case "hold":
                (own / f"{made}.held").create(b"")
                own.sync()
            case "publish":
                publish()
            case "done" if lease is not None:
                return lease
            case "give up":
                # The same command may run elsewhere, and it may have looked in time.
                raise FileNotFoundError(
                    f"{folder}: batch {wanted.batch} was cleaned up meanwhile: choose a newer one. "
                    f"'holdfast untag {folder} {name}' removes what there is of {name!r}"
                )
            case "refuse":
                raise FileExistsError(
                    f"{folder}: {name!r} keeps {_said(lease)}: choose another name, or remove it "
                    f"by 'holdfast untag {folder} {name}'"
                )


def _said(lease: Lease | None) -> str:
    return "nothing, because it is cut" if lease is None else f"batch {lease.batch}"


def _is_same(found: FoundLease, wanted: Wanted) -> bool:
    require_whole(wanted.folder, found)
    lease = found.lease
    # A cut one may be complete in a moment.
    return lease is not None and (lease.batch, lease.branch) == (wanted.batch, wanted.branch)


def drop(folder: AnyPath, name: str) -> None:
    """Remove a lease, and everything that belongs to it. May be repeated after a crash."""
    own = leases_folder(folder)
    # The name may be used again, and later files belong to another lease.
    others = [path for path in listed(own) if path.name.lstrip(".").startswith(f"{name}.")]
    # Without this file nothing is kept.
    (own / f"{name}.lease").unlink(missing_ok=True)
    with suppress(FileNotFoundError):
        own.sync()
    for path in others:
        if path.is_dir():
            path.remove_tree()
        else:
            path.unlink(missing_ok=True)


def kept_bytes(folder: AnyPath, leases: list[Lease]) -> list[int]:
    """Return for each lease the bytes of the segments that no retained batch needs.

    Reads the newest segment of each store.
    """
    logged = committed_batches(folder)
    if all(one.batch in logged for one in leases):
        return [0] * len(leases)
    retained = read_commit(folder, logged[0]) if logged else []
    with stored_segments(folder / STATE_FILES_FOLDER) as stored:

        def segments(stores: Sequence[tuple[int, int, str]]) -> Iterator[SegmentRef]:
            for _, partition, text in stores:
                for _, id in CommitId.needed(partition, text):
                    if id.ref is not None:
                        yield from [*stored.inspect(id.ref).lineage, id.ref]
                    for _, pending in id.pending:
                        yield from [*stored.inspect(pending).lineage, pending]

        needed = {*segments(retained)}
        # The oldest retained batch needs each segment of an older batch that a later one needs.
        alone = (() if one.batch in logged else {*segments(one.stores)} - needed for one in leases)
        return [sum(ref.length for ref in refs) for refs in alone]


def _find(folder: ReadPath, name: str, names: list[str]) -> FoundLease | None:
    if f"{name}.lease" not in names:
        return None
    begin, lease = f"{name}.", None
    try:
        data = (leases_folder(folder) / f"{name}.lease").read_bytes()
        lease = Lease(**json.loads(lease_from_bytes(data)))
        begin += f"{lease.id}."
    except FileNotFoundError:
        return None
    except (CorruptSegmentError, NotImplementedError):
        pass
    held = [one for one in names if one.startswith(begin) and one.endswith(".held")]
    return FoundLease(name, lease, held[0].removesuffix(".held") if held else None)
