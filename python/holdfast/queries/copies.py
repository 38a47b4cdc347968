"""Spark's files of a batch: everything but segments that a query needs to go on after it."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from contextlib import suppress
from typing import Final

from holdfast._core import CommitId
from holdfast.files.paths import AnyPath, listed
from holdfast.queries.logs import COMMITS_FOLDER, OFFSETS_FOLDER, logged_batches, read_commit

#: Files of Holdfast: the minor of Spark, and rows that were skipped.
_BESIDE: Final = ("state/holdfast.json", "isolation/skipped")

#: Folder of the batches in which rows of partitions began to wait.
_ISOLATION: Final = "isolation"

_SCHEMAS: Final = "_stateSchema"
_METADATA: Final = "_metadata"

#: Entries of a source's log may be merged into a later one while they are copied.
_TRIES: Final = 3


def copy_batch(
    source: AnyPath, batch: int, target: AnyPath, *, commit: bool, query: str | None = None
) -> None:
    """Copy Spark's files of a batch into a folder with the layout of a checkpoint.

    Files that are there are replaced, so a copy may be repeated after a crash.

    Parameters
    ----------
    source : AnyPath
        A checkpoint, or a copy of one.
    commit : bool
        Copy the entry of the commit log, too. Without it no query begins in `target`.
    query : str, optional
        Id of the query that goes on in `target`. Then the paths in files are those of `target`.

    Raises
    ------
    FileNotFoundError
        If a file was cleaned up meanwhile.
    """
    plans, copies = source / OFFSETS_FOLDER, target / OFFSETS_FOLDER
    plan = (plans / str(batch)).read_bytes()
    if batch:
        # Spark needs the plan before the newest one, but only to run the newest one again.
        before = plans / str(batch - 1)
        put(copies / before.name, before.read_bytes() if before.is_file() else plan)
    put(copies / str(batch), plan)
    for name in _BESIDE:
        file = source / name
        if file.is_file():
            put(target / name, file.read_bytes())
    for number in logged_batches(source / _ISOLATION):
        if number <= batch:
            # The query deletes those that its newest batch does not need.
            with suppress(FileNotFoundError):
                data = (source / _ISOLATION / str(number)).read_bytes()
                put(target / _ISOLATION / str(number), data)
    require_waiting(target, batch, read_commit(source, batch))
    for operator in logged_batches(source / "state"):
        name = str(operator)
        own, new = source / "state" / name, target / "state" / name
        for file in _metadata(own / _METADATA, batch):
            data = file.read_bytes()
            if query is not None:
                data = _moved(data, f"{new.spark_name}/{_SCHEMAS}")
            put(_place(file, own, new), data)
        schemas = [*files_in(own / _SCHEMAS), *files_in(own / "0", below=_METADATA)]
        for file in schemas:
            put(_place(file, own, new), file.read_bytes())
    _copy_sources(source / "sources", target / "sources")
    if query is not None:
        put(target / "metadata", json.dumps({"id": query}).encode())
    if commit:
        copy_commit(source, batch, target)


def require_waiting(folder: AnyPath, batch: int, stores: Sequence[tuple[int, int, str]]) -> None:
    """Raise a FileNotFoundError if rows wait in a batch, and Holdfast's file of them is not there.

    `stores` are operator, partition and id of the stores after the batch.
    """
    needed = (id for _, partition, text in stores for _, id in CommitId.needed(partition, text))
    for waiting in sorted({version - 1 for id in needed for version, _ in id.pending}):
        file = folder / _ISOLATION / str(waiting)
        if not file.is_file():
            raise FileNotFoundError(
                f"rows of batch {waiting} wait in batch {batch}, and {file} was cleaned up: choose "
                "a newer batch"
            )


def copy_commit(source: AnyPath, batch: int, target: AnyPath) -> None:
    """Copy the entry of the commit log, after which a query can begin."""
    put(target / COMMITS_FOLDER / str(batch), (source / COMMITS_FOLDER / str(batch)).read_bytes())


def put(file: AnyPath, data: bytes) -> None:
    """Write a file, durably with its name; a file with other content is replaced."""
    if file.is_file():
        if file.read_bytes() == data:
            return
        file.unlink()
    file.parent.make_folder(exist_ok=True)
    file.create(data)
    file.parent.sync()


def _metadata(folder: AnyPath, batch: int) -> Iterator[AnyPath]:
    """Yield the files that describe an operator at a batch."""
    versions = folder / "v2"
    # Spark removes those that no retained batch needs.
    newest = [one for one in logged_batches(versions) if one <= batch][-1:]
    yield from (versions / str(one) for one in newest)
    old = folder / "metadata"
    if old.is_file():
        yield old


def files_in(folder: AnyPath, below: str | None = None) -> Iterator[AnyPath]:
    """Yield the files in a folder, or those in its folders of a name, without hidden ones."""
    for path in listed(folder):
        if path.is_dir():
            yield from files_in(path, None if path.name == below else below)
        # The checksums of Hadoop's local files are hidden, and content may change.
        elif below is None and not path.name.startswith("."):
            yield path


def _place(file: AnyPath, root: AnyPath, new: AnyPath) -> AnyPath:
    return new / str(file).removeprefix(f"{root}/")


def _moved(data: bytes, schemas: str) -> bytes:
    """Let the paths of schemas in the description of an operator lead to another folder."""
    version, _, text = data.decode().partition("\n")
    found = json.loads(text)
    for store in found["stateStoreInfo"]:
        if paths := store.get("stateSchemaFilePaths"):
            ends = (path.rpartition(f"/{_SCHEMAS}/")[2] for path in paths)
            store["stateSchemaFilePaths"] = [f"{schemas}/{end}" for end in ends]
    return f"{version}\n{json.dumps(found, separators=(',', ':'))}".encode()


def _copy_sources(source: AnyPath, target: AnyPath) -> None:
    """Copy the logs of sources. Spark takes entries after the batch as input that it found."""
    for log in listed(source):
        for tries in range(1, _TRIES + 1):
            try:
                for file in files_in(log):
                    put(_place(file, source, target), file.read_bytes())
                break
            except FileNotFoundError:
                if tries == _TRIES:
                    raise
