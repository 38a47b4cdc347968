"""``holdfast parked`` without Spark: what waits, and moving rows with a kill at every step."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from holdfast.cli.dead_letters import ranges
from holdfast.cli.parked import finish, move
from holdfast.files.mounted import MountedPath
from holdfast.queries.parked import parked_partitions, read_skips
from support.commands import cells, run
from support.killed_steps import Killed, killed_at, kills

#: Versions 2 to 4 are parked: with one row, without input, and with three rows.
FIXTURE = Path(__file__).parent.parent / "fixtures" / "parked-v1"
PARTITION = 3
#: Rows to skip, by batch and number.
WANTED = [(1, 0), (3, 0), (3, 2)]


@pytest.fixture
def query(tmp_path: Path) -> MountedPath:
    return query_of(tmp_path)


def query_of(folder: Path, batches: int = 4) -> MountedPath:
    """The checkpoint of a query whose batches 1 to 3 are parked."""
    checkpoint = MountedPath(folder / "checkpoint")
    for name in ("offsets", "commits", "isolation"):
        (checkpoint / name).mkdir(parents=True)
    (checkpoint / "metadata").write_text('{"id":"one"}')
    for batch, id in enumerate((FIXTURE / "ids.txt").read_text().split()[:batches]):
        state = {"stateUniqueIds": {"0": [[], [], [], [id]]}}
        (checkpoint / "commits" / str(batch)).write_text(f"v2\n{json.dumps(state)}")
        (checkpoint / "offsets" / str(batch)).write_text("v1\n{}\n0")
        if batch in (1, 2, 3):
            marker(checkpoint, batch)
    shutil.copytree(FIXTURE / "intact", checkpoint / "state" / "holdfast")
    return checkpoint


def marker(checkpoint: Path, batch: int, **more: Any) -> None:
    parked = {"at_ms": batch * 1000, "tries": batch, "error": f"ValueError: {batch}", **more}
    document = {"name": "dedupe", "parked": {str(PARTITION): parked}}
    (checkpoint / "isolation" / str(batch)).write_text(json.dumps(document))


def test_parked_partitions_are_listed(
    query: MountedPath, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, err = run(capsys, "parked", query)
    assert (status, err) == (0, "")
    assert [cells(line) for line in lines] == [
        [
            *cells("operator  name  partition  since batch  since"),
            *cells("batches  tries  keys  rows  bytes  error"),
        ],
        [
            "0",
            "dedupe",
            "3",
            "1",
            "1970-01-01T00:00:01Z",
            "2",
            "3",
            "1.0",
            "4",
            "29",
            "ValueError: 3",
        ],
    ]
    (found,) = json.loads("".join(run(capsys, "parked", query, "--json")[1]))["parked"]
    assert (found["since_ms"], found["rows"], found["error"]) == (1000, 4, "ValueError: 3")
    assert found["inputs"] == [
        {"batch": 1, "rows": 1, "skipped_rows": 0, "bytes": 16},
        {"batch": 3, "rows": 3, "skipped_rows": 0, "bytes": 13},
    ]


def test_the_share_of_the_keys_that_wait_is_shown(
    query: MountedPath, capsys: pytest.CaptureFixture[str]
) -> None:
    # An eighth, and a quarter.
    marker(query, 3, waits=[12, 5])
    (found,) = json.loads("".join(run(capsys, "parked", query, "--json")[1]))["parked"]
    assert found["keys"] == 0.375


def test_a_partition_is_listed_without_its_markers(
    query: MountedPath, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(query / "isolation")
    (found,) = json.loads("".join(run(capsys, "parked", query, "--json")[1]))["parked"]
    assert (found["rows"], found["name"], found["error"]) == (4, None, None)


def test_a_query_without_parked_partitions_says_so(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    # The last batch has replayed everything.
    query = query_of(tmp_path, batches=5)
    for arguments in (("parked", query), ("parked", query, "--rows", "json")):
        status, _, err = run(capsys, *arguments)
        assert (status, err) == (0, f"holdfast: nothing is parked in {query}\n")
    assert json.loads("".join(run(capsys, "parked", query, "--json")[1])) == {"parked": []}
    skip = ("skip", "--partition", 3, "--where", "true", "--dead-letter", tmp_path / "letters")
    status, _, err = run(capsys, "parked", query, *skip)
    assert (status, err) == (2, f"holdfast: partition 3 is not parked in {query}\n")


def test_folders_of_something_else_are_errors(
    tmp_path: Path, query: MountedPath, capsys: pytest.CaptureFixture[str]
) -> None:
    status, _, err = run(capsys, "parked", tmp_path / "none")
    assert (status, err) == (1, f"holdfast: {tmp_path}/none does not exist\n")
    status, _, err = run(capsys, "parked", tmp_path)
    assert (status, err) == (
        1,
        f"holdfast: {tmp_path} is not the checkpoint of a streaming query\n",
    )
    (query / "isolation" / "3").write_text("{")
    status, _, err = run(capsys, "parked", query)
    assert status == 1
    assert "isolation/3 is damaged" in err
    shutil.rmtree(query / "state")
    assert run(capsys, "parked", query)[0] == 1


def test_ranges_are_consecutive_numbers() -> None:
    assert ranges([]) == ()
    assert ranges([4, 0, 1, 2, 6, 7]) == ((0, 3), (4, 5), (6, 8))


def waiting(query: MountedPath) -> set[tuple[int, int]]:
    """Rows that a replay would give to the program."""
    return {
        (one.batch, number)
        for parked in parked_partitions(query)
        for one in parked.inputs
        for number in range(one.rows)
        if not any(begin <= number < end for begin, end in one.skipped)
    }


def in_letters(folder: Path) -> list[tuple[int, int]]:
    """Rows of dead letters that a reader of the folder sees."""
    found = [pq.read_table(file) for file in sorted(folder.glob("[!.]*.parquet"))]
    return [tuple(row["place"]) for table in found for row in table.to_pylist()]


def command(query: MountedPath, letters: Path, wanted: list[tuple[int, int]] = WANTED) -> None:
    """What the command does when Spark has found the matching rows."""
    finish(query, PARTITION)
    (parked,) = parked_partitions(query)
    places = sorted(set(wanted) & waiting(query))
    if places:
        columns = {
            "_batch": [batch for batch, _ in places],
            "_row": [row for _, row in places],
            "place": [list(place) for place in places],
        }
        move(query, parked, pa.table(columns), MountedPath(letters))


ALL = {(1, 0), (3, 0), (3, 1), (3, 2)}


def test_rows_are_moved_to_dead_letters(query: MountedPath, tmp_path: Path) -> None:
    command(query, tmp_path / "letters", [(3, 1)])
    command(query, tmp_path / "letters", [(3, 0), (1, 0)])
    assert waiting(query) == {(3, 2)}
    assert sorted(in_letters(tmp_path / "letters")) == [(1, 0), (3, 0), (3, 1)]
    first, second = sorted((tmp_path / "letters").iterdir())
    assert [first.name, second.name] == ["one-0-3-0.parquet", "one-0-3-1.parquet"]
    assert pq.read_table(first).column_names == ["_batch", "place", "_error"]
    assert pq.read_table(first)["_error"].to_pylist() == ["ValueError: 3"]


def test_a_kill_at_any_step_loses_no_row_and_doubles_none(tmp_path: Path) -> None:
    ended = 0
    for step, after in kills():
        folder = tmp_path / f"{step}-{after}"
        query, letters = query_of(folder), folder / "letters"
        with pytest.MonkeyPatch.context() as patches:
            count = killed_at(patches, step, after)
            try:
                command(query, letters)
                ended += 1
            except Killed:
                assert count() == step
        if all(one.done for one in read_skips(query)):
            # The query may go on.
            assert sorted(ALL - waiting(query)) == sorted(in_letters(letters))
        command(query, letters)
        assert waiting(query) == ALL - set(WANTED)
        assert sorted(in_letters(letters)) == WANTED
        assert not list(letters.glob(".*"))
    assert 0 < ended < 30


def test_nothing_moves_while_a_batch_may_deliver_the_rows(
    query: MountedPath, tmp_path: Path
) -> None:
    (query / "offsets" / "4").write_text("v1\n{}\n0")
    for marks in (None, [2]):
        if marks:
            # Half of the keys wait, and the batch delivers the others.
            marker(query, 4, waits=marks)
        with pytest.raises(OSError, match="batch 4 of the query has begun and not ended"):
            command(query, tmp_path / "letters")
        assert not (tmp_path / "letters").exists()
    # If the batch parks the partition, it does not deliver.
    marker(query, 4, waits=[2, 3])
    command(query, tmp_path / "letters")
    assert sorted(in_letters(tmp_path / "letters")) == WANTED


def test_a_batch_that_begins_meanwhile_takes_the_skip_back(
    query: MountedPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = MountedPath.replace_text

    def begins(self: MountedPath, text: str, **kwargs: Any) -> None:
        if not (query / "offsets" / "4").exists():
            (query / "offsets" / "4").write_text("v1\n{}\n0")
        real(self, text, **kwargs)

    monkeypatch.setattr(MountedPath, "replace_text", begins)
    with pytest.raises(OSError, match="batch 4 of the query has begun and not ended"):
        command(query, tmp_path / "letters")
    assert waiting(query) == ALL
    assert read_skips(query) == []
    assert not list((tmp_path / "letters").iterdir())


def test_rows_that_a_batch_processed_meanwhile_are_not_said_to_be_moved(
    query: MountedPath, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = (FIXTURE / "ids.txt").read_text().split()
    real = MountedPath.replace_text

    def processes(self: MountedPath, text: str, **kwargs: Any) -> None:
        state = {"stateUniqueIds": {"0": [[], [], [], [ids[4]]]}}
        for log in ("offsets", "commits"):
            (query / log / "4").write_text(f"v2\n{json.dumps(state)}")
        real(self, text, **kwargs)

    monkeypatch.setattr(MountedPath, "replace_text", processes)
    with pytest.raises(OSError, match="processed parked rows of partition 3 meanwhile"):
        command(query, tmp_path / "letters")
    assert read_skips(query) == []
    assert not list((tmp_path / "letters").iterdir())


def test_a_skip_is_taken_back_if_the_rows_were_processed_meanwhile(
    query: MountedPath, tmp_path: Path
) -> None:
    with pytest.MonkeyPatch.context() as patches:
        patches.setattr(MountedPath, "publish", lambda *args: (_ for _ in ()).throw(Killed))
        with pytest.raises(Killed):
            command(query, tmp_path / "letters")
    ids = (FIXTURE / "ids.txt").read_text().split()
    for log in ("commits", "offsets"):
        state = {"stateUniqueIds": {"0": [[], [], [], [ids[4]]]}}
        (query / log / "4").write_text(f"v2\n{json.dumps(state)}")
    finish(query, PARTITION)
    assert read_skips(query) == []
    assert not list((tmp_path / "letters").iterdir())
