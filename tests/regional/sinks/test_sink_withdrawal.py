"""Output that a pipeline takes back when it returns to an older checkpoint (R75)."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from holdfast.files.mounted import MountedPath
from holdfast.regions.sinks import ParquetSink

SCHEMA = pa.schema([("row", pa.int64())])


def write(sink: ParquetSink, region: str, attempt: int) -> str:
    """Publish a file, and return its name."""
    with sink.writer(region, attempt, SCHEMA) as writer:
        writer.write(pa.record_batch([pa.array([attempt])], schema=SCHEMA))
        staged = writer.close()
    assert staged is not None
    sink.commit(1, [staged])
    return staged.target


def names(folder: Path) -> set[str]:
    return {path.name for path in folder.iterdir() if path.is_file()}


@pytest.fixture
def sink(tmp_path: Path) -> ParquetSink:
    return ParquetSink(tmp_path / "out")


def test_what_later_attempts_published_goes_and_the_rest_stays(sink: ParquetSink) -> None:
    stay = {write(sink, region, attempt) for region in ("JFK", '["a/b",1]') for attempt in (1, 2)}
    go = [write(sink, region, attempt) for region in ("JFK", '["a/b",1]') for attempt in (3, 11)]
    assert sink.published_after(2) == sorted(str(sink.root / name) for name in go)
    for _ in range(2):
        sink.withdraw(2)
        assert names(sink.root) == stay
        assert sink.published_after(2) == []


def test_files_of_other_writers_stay(sink: ParquetSink) -> None:
    name = write(sink, "JFK", 7)
    others = {
        "part-0000000009-3f0c.parquet",
        "part-00009-5f7a3c6e-1111-2222-3333-444455556666-c000.snappy.parquet",
        name + ".crc",
        "x" + name,
        name.removesuffix(".parquet") + ".csv",
        "_SUCCESS",
    }
    for other in others:
        (sink.root / other).touch()
    sink.withdraw(0)
    assert names(sink.root) == others


def test_a_sink_that_wrote_nothing_has_nothing_to_take_back(sink: ParquetSink) -> None:
    assert sink.published_after(0) == []
    sink.withdraw(0)
    assert not sink.root.exists()


def test_what_is_withdrawn_does_not_come_back_after_a_crash(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(sink, "JFK", 3)
    synced: list[tuple[Path, set[str]]] = []

    def note(folder: Path) -> None:
        synced.append((folder, names(folder)))

    monkeypatch.setattr(MountedPath, "sync", note)
    sink.withdraw(2)
    assert synced == [(sink.root, set())]


def test_a_refusal_of_the_file_system_is_explained(
    sink: ParquetSink, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = write(sink, "JFK", 3)

    def refuse(path: Path, **_: Any) -> None:
        raise PermissionError(errno.EACCES, "no", str(path))

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(PermissionError, match="cannot withdraw files that attempts after 2"):
        sink.withdraw(2)
    assert names(sink.root) == {name}


def test_the_same_sink_elsewhere(sink: ParquetSink, tmp_path: Path) -> None:
    other = ParquetSink(tmp_path / "b", compression="gzip")
    assert other.at(sink.location) == ParquetSink(sink.root, compression="gzip")
