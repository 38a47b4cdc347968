"""Spark's record of a stream: copied whole, cut back exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.regions.stream_log import copy_stream, rewind_stream

# Of a source with offsets of its own, a file source that found files for every other batch, and one
# that has no offset yet.
OFFSETS = """v1
{{"batchWatermarkMs":0}}
{{"topic":{{"0":{rows}}}}}
{{"logOffset":{files}}}
-"""
FILE = '{{"path":"{path}","timestamp":1,"batchId":{entry}}}'


def record(folder: Path, *, offsets: int, commits: int) -> Path:
    """A record with so many batches planned and done, as Spark lays it out, and the input files."""
    inputs = folder.parent / "in"
    inputs.mkdir(exist_ok=True)
    for name, count in (("offsets", offsets), ("commits", commits)):
        (folder / name).mkdir(parents=True)
        for batch in range(count):
            (folder / name / str(batch)).write_text(OFFSETS.format(files=batch // 2, rows=batch))
            (folder / name / f".{batch}.crc").write_text("checksum")
    for source in range(3):
        (folder / "sources" / str(source)).mkdir(parents=True)
    for entry in range((offsets + 1) // 2):
        name = f"{entry}.compact" if entry in (3, 6) else str(entry)
        file = inputs / f"{entry} %25.csv"
        file.touch()
        line = FILE.format(entry=entry, path=file.as_uri())
        (folder / "sources" / "1" / name).write_text(f"v1\n{line}")
        (folder / "sources" / "1" / f".{name}.crc").write_text("checksum")
    (folder / "sources" / "0" / "0").write_text("where it began")
    (folder / "metadata").write_text('{"id":"q"}')
    return folder


def names(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file()}


def test_everything_is_copied_but_what_is_being_written(tmp_path: Path) -> None:
    source = record(tmp_path / "a", offsets=3, commits=2)
    (source / "offsets" / ".3.6c0f.tmp").write_text("half")
    copy_stream(source, tmp_path / "b")
    assert names(tmp_path / "b") == names(source) - {"offsets/.3.6c0f.tmp"}
    assert (tmp_path / "b" / "offsets" / "2").read_text() == OFFSETS.format(files=1, rows=2)


def test_a_folder_without_spark_has_no_record(tmp_path: Path) -> None:
    copy_stream(tmp_path / "a", tmp_path / "b")
    rewind_stream(tmp_path / "b", 3)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("batch", "offsets", "commits"),
    [(-1, 0, 0), (0, 1, 1), (1, 2, 2), (5, 6, 6), (11, 12, 11), (12, 13, 11)],
)
def test_newer_batches_are_cut_off_with_their_checksums(
    tmp_path: Path, batch: int, offsets: int, commits: int
) -> None:
    folder = record(tmp_path / "a", offsets=13, commits=11)
    for _ in range(2):
        rewind_stream(folder, batch)
        assert names(folder) == names(record(tmp_path / f"b{_}", offsets=offsets, commits=commits))


def test_a_file_source_keeps_its_log_when_it_would_not_find_its_files_again(
    tmp_path: Path,
) -> None:
    folder = record(tmp_path / "a", offsets=13, commits=11)
    (tmp_path / "in" / "1 %25.csv").unlink()
    rewind_stream(folder, 4)
    assert not (folder / "sources" / "1" / "3.compact").exists()
    before = names(folder / "sources")
    rewind_stream(folder, 1)
    assert names(folder / "sources") == before
    assert names(folder / "offsets") == {"0", "1", ".0.crc", ".1.crc"}


def test_a_file_source_keeps_its_log_when_its_files_lie_elsewhere(tmp_path: Path) -> None:
    folder = record(tmp_path / "a", offsets=4, commits=4)
    log = folder / "sources" / "1" / "1"
    log.write_text(log.read_text().replace("file://", "s3a://bucket"))
    rewind_stream(folder, 1)
    assert log.exists()
    rewind_stream(folder, 1)
    assert names(folder / "commits") == {"0", "1", ".0.crc", ".1.crc"}
