"""Spark's record of a stream: copied whole, cut back exactly."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import RegionalQueryError
from holdfast.regions.checkpoint.stream_log import (
    copy_stream,
    require_planned,
    rewind_stream,
    settle_stream,
)

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


def add_entries(folder: Path, *entries: str) -> None:
    """Let the file source note files that no batch is planned with, as before a crash."""
    inputs = folder.parent / "in"
    log = folder / "sources" / "1"
    for name in entries:
        entry = int(name.partition(".")[0])
        lines = ["v1"]
        # A compacted entry repeats all before it.
        for number in range(entry + 1) if name.endswith(".compact") else (entry,):
            file = inputs / f"{number} %25.csv"
            file.touch()
            lines.append(FILE.format(entry=number, path=file.as_uri()))
        (log / name).write_text("\n".join(lines))
        (log / f".{name}.crc").write_text("checksum")


@pytest.mark.parametrize(
    "ahead", [[], ["7"], ["7.compact"], ["7", "8"], ["7.compact", "8"]], ids=str
)
@pytest.mark.parametrize("gone_back", [False, True])
def test_what_no_batch_was_planned_with_is_cut_off(
    tmp_path: Path, ahead: list[str], gone_back: bool
) -> None:  # R93
    folder = record(tmp_path / "a", offsets=13, commits=13)
    before = names(folder)
    add_entries(folder, *ahead)
    (folder / "sources" / "1" / ".9.6c0f.tmp").write_text("half")
    for _ in range(2):
        if gone_back:
            rewind_stream(folder, 12)
        else:
            settle_stream(folder, 12)
        assert names(folder) == before | {"sources/1/.9.6c0f.tmp"}


def test_what_a_planned_batch_reads_stays_although_it_is_not_done(tmp_path: Path) -> None:
    folder = record(tmp_path / "a", offsets=13, commits=11)
    before = names(folder)
    settle_stream(folder, 10)
    assert names(folder) == before


def test_before_the_first_batch_file_sources_begin_anew_and_others_where_they_began(
    tmp_path: Path,
) -> None:  # R93
    folder = record(tmp_path / "a", offsets=1, commits=0)
    (folder / "sources" / "2" / "0").write_text("v1\n1700000000000")
    for name in names(folder / "offsets"):
        (folder / "offsets" / name).unlink()
    settle_stream(folder, -1)
    assert names(folder / "sources") == {"0/0", "2/0"}


def test_files_that_were_not_read_are_found_again_wherever_they_lie(tmp_path: Path) -> None:
    folder = record(tmp_path / "a", offsets=13, commits=13)
    add_entries(folder, "7")
    log = folder / "sources" / "1" / "7"
    log.write_text(log.read_text().replace("file://", "s3a://bucket"))
    settle_stream(folder, 12)
    assert not log.exists()


@pytest.mark.parametrize("torn", ["", "v1", 'v1\n{"path":"fi'])
def test_an_entry_that_a_crash_left_torn_is_cut_off(tmp_path: Path, torn: str) -> None:
    folder = record(tmp_path / "a", offsets=13, commits=13)
    add_entries(folder, "7")
    (folder / "sources" / "1" / "7").write_text(torn)
    settle_stream(folder, 12)
    assert not (folder / "sources" / "1" / "7").exists()


def test_a_log_stays_when_a_file_is_gone_unread_or_spark_could_not_read_the_rest(
    tmp_path: Path,
) -> None:
    folder = record(tmp_path / "a", offsets=13, commits=13)
    add_entries(folder, "7.compact")
    (tmp_path / "in" / "7 %25.csv").unlink()
    before = names(folder)
    settle_stream(folder, 12)
    assert names(folder) == before, "Spark fails, where it would not miss the file"
    (tmp_path / "in" / "7 %25.csv").touch()
    # As if Spark had cleaned up behind the compacted entry.
    (folder / "sources" / "1" / "6.compact").unlink()
    (folder / "sources" / "1" / "4").unlink()
    before = names(folder)
    settle_stream(folder, 12)
    assert names(folder) == before


def test_sources_with_names_of_their_own_are_cut_back_too(tmp_path: Path) -> None:
    folder = record(tmp_path / "a", offsets=13, commits=13)
    (folder / "sources" / "1").rename(folder / "sources" / "landing")
    (folder / "offsets" / "12").write_text(
        'v2\n{"batchWatermarkMs":0}\ntopic:{"0":12}\nlanding:{"logOffset":6}'
    )
    (folder / "sources" / "landing" / "7").write_text("")
    settle_stream(folder, 12)
    assert not (folder / "sources" / "landing" / "7").exists()
    assert (folder / "sources" / "landing" / "6.compact").exists()


def test_a_record_that_is_behind_the_checkpoint_is_refused(tmp_path: Path) -> None:  # R93
    folder = record(tmp_path / "a", offsets=13, commits=13)
    add_entries(folder, "7")
    before = names(folder)
    with pytest.raises(RegionalQueryError, match=r"ends with batch 12.* holds batch 13"):
        settle_stream(folder, 13)
    with pytest.raises(RegionalQueryError, match="ends with batch -1"):
        settle_stream(tmp_path / "nothing", 0)
    settle_stream(tmp_path / "nothing", -1)
    assert names(folder) == before


def test_damaged_offsets_are_no_reason_to_read_everything_again(tmp_path: Path) -> None:
    folder = record(tmp_path / "a", offsets=13, commits=12)
    (folder / "offsets" / "12").write_text("")
    before = names(folder)
    with pytest.raises(RegionalQueryError, match="offsets/12 is no offsets file"):
        settle_stream(folder, 11)
    assert names(folder) == before
    rewind_stream(folder, 11)
    settle_stream(folder, 11)
    assert names(folder / "sources/1") < {name.removeprefix("sources/1/") for name in before}


def test_going_back_behind_what_is_recorded_is_refused(tmp_path: Path) -> None:
    folder = record(tmp_path / "a", offsets=13, commits=13)
    (folder / "offsets" / "4").unlink()
    before = names(folder)
    for refused in (require_planned, rewind_stream):
        with pytest.raises(FileNotFoundError, match="offsets/4"):
            refused(folder, 4)
    assert names(folder) == before
    require_planned(folder, 5)
    require_planned(tmp_path / "nothing", 5)
