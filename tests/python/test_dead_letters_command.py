"""``holdfast dead-letters``: rows that queries have set aside, by batch and error."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from support.commands import cells, run

#: Two queries, by their ids.
FIRST, SECOND = "0a", "0b"
HEAD = ["query", "source", "batch", "error class", "rows", "first error"]
#: An error class and a message; the oldest comes first.
Errors = Sequence[tuple[str, str]]


def letters(dead: Path, query: str, source: int, batch: int, errors: Errors) -> Path:
    """Writes the dead letters of a batch as the plugin does, the newest row first."""
    begin = datetime(2026, 1, 1, tzinfo=UTC)
    rows = [
        {
            "batch": batch,
            "source": source,
            "position": {"file": "file:/in/0.parquet", "start": 0, "row": number},
            "error_class": kind,
            "error": text,
            "at": begin + timedelta(seconds=number),
            "row": {"item": "none"},
        }
        for number, (kind, text) in enumerate(errors)
    ]
    position = {name: pa.int64() for name in ("partition", "offset", "start", "row")}
    schema = pa.schema(
        {
            "batch": pa.int64(),
            "source": pa.int32(),
            "position": pa.struct({"topic": pa.string(), "file": pa.string(), **position}),
            "error_class": pa.string(),
            "error": pa.string(),
            "at": pa.timestamp("us", "UTC"),
            "row": pa.struct({"item": pa.string()}),
        }
    )
    file = dead / query / str(source) / f"{batch}.parquet"
    file.parent.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(rows[::-1], schema), file)
    return file


@pytest.fixture
def dead(tmp_path: Path) -> Path:
    """The dead letters of two queries. The first one reads two sources."""
    folder = tmp_path / "dead"
    letters(folder, SECOND, 0, 3, [("KeyError", "KeyError: 'a'")])
    letters(folder, FIRST, 0, 10, [("ZERO", "zero")])
    letters(folder, FIRST, 0, 9, [("CAST", "older"), ("ZERO", "zero"), ("CAST", "newer")])
    letters(folder, FIRST, 1, 9, [("CAST", "other source")])
    return folder


def test_rows_are_lines_of_json(dead: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, err = run(capsys, "dead-letters", dead / SECOND, "--rows")
    assert (status, err) == (0, "")
    position = {"topic": None, "file": "file:/in/0.parquet", "partition": None, "offset": None}
    assert [json.loads(line) for line in lines] == [
        {
            "query": SECOND,
            "batch": 3,
            "source": 0,
            "position": {**position, "start": 0, "row": 0},
            "error_class": "KeyError",
            "error": "KeyError: 'a'",
            "at": "2026-01-01T00:00:00.000000Z",
            "row": {"item": "none"},
        }
    ]


def test_rows_are_counted_by_batch_and_error(
    dead: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, err = run(capsys, "dead-letters", dead)
    assert (status, err) == (0, "")
    head, *body, total = map(cells, lines)
    assert head == HEAD
    assert sorted(body[:2]) == [
        [FIRST, "0", "9", "CAST", "2", "older"],
        [FIRST, "0", "9", "ZERO", "1", "zero"],
    ]
    assert body[2:] == [
        [FIRST, "0", "10", "ZERO", "1", "zero"],
        [FIRST, "1", "9", "CAST", "1", "other source"],
        [SECOND, "0", "3", "KeyError", "1", "KeyError: 'a'"],
    ]
    assert total == ["total", "-", "-", "-", "6", "-"]


def test_programs_get_an_object_a_line(dead: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, err = run(capsys, "dead-letters", dead / SECOND, "--json")
    assert (status, err) == (0, "")
    assert [json.loads(line) for line in lines] == [
        {
            "query": SECOND,
            "source": 0,
            "batch": 3,
            "error_class": "KeyError",
            "rows": 1,
            "first_error": "KeyError: 'a'",
        }
    ]


def test_the_folder_of_one_query_has_its_rows(
    dead: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    expected = [SECOND, "0", "3", "KeyError", "1", "KeyError: 'a'"]
    monkeypatch.chdir(dead / SECOND)
    for folder in (dead / SECOND, f"file:{dead / SECOND}", "."):
        _, lines, _ = run(capsys, "dead-letters", folder)
        assert cells(lines[1]) == expected


def test_errors_with_control_characters_stay_in_their_line(
    dead: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    letters(dead, "0c", 0, 0, [("E", "red\x1b[31m\nand more")])
    _, lines, _ = run(capsys, "dead-letters", dead / "0c")
    assert cells(lines[1])[-1] == "red [31m and more"


def test_rows_and_positions_are_not_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = letters(tmp_path, FIRST, 0, 0, [("CAST", "one")])
    group = pq.ParquetFile(file).metadata.row_group(0)
    content = bytearray(file.read_bytes())
    for column in map(group.column, range(group.num_columns)):
        if column.path_in_schema.partition(".")[0] in ("row", "position"):
            begin = column.dictionary_page_offset or column.data_page_offset
            content[begin : begin + column.total_compressed_size] = bytes(
                column.total_compressed_size
            )
    file.write_bytes(content)
    with pytest.raises((OSError, ValueError)):
        pq.read_table(file)
    status, lines, err = run(capsys, "dead-letters", tmp_path)
    assert (status, cells(lines[1])[-1], err) == (0, "one", "")


def test_a_folder_without_letters_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # A query that has not set any row aside, and a file that is being written.
    (tmp_path / FIRST).mkdir()
    (tmp_path / FIRST / ".0.parquet").write_text("half of")
    for more in ([], ["--json"]):
        status, lines, err = run(capsys, "dead-letters", tmp_path, *more)
        assert (status, lines) == (0, [])
        assert err == f"holdfast: {tmp_path} has no dead letters\n"


def test_a_missing_folder_is_an_error(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, err = run(capsys, "dead-letters", tmp_path / "gone")
    assert (status, lines, err) == (1, [], f"holdfast: {tmp_path / 'gone'} does not exist\n")


def test_other_files_are_errors_after_the_letters(
    dead: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pq.write_table(pa.table({"batch": [1], "error": ["x"]}), dead / "foreign.parquet")
    damaged = letters(dead, "0c", 0, 0, [("CAST", "lost")])
    damaged.write_bytes(damaged.read_bytes()[:-1])
    status, lines, err = run(capsys, "dead-letters", dead)
    assert (status, cells(lines[-1])[4]) == (1, "6")
    first, *said = err.splitlines()
    assert first == "holdfast: 2 files are no dead letters of bad rows, or damaged:"
    of_damaged, of_foreign = sorted(said)
    assert of_damaged.startswith(f"  {damaged}: ")
    missing = "it has no columns source, error_class, at"
    assert of_foreign == f"  {dead / 'foreign.parquet'}: {missing}"
