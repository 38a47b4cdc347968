"""``holdfast show --details``: what it says of attempts, regions, operators, stores and files."""

from __future__ import annotations

import io
import json
import shutil
from pathlib import Path

import pytest

from holdfast._core import CheckpointMetadata, RegionEntry, SegmentRef
from holdfast.cli import details
from holdfast.cli.output import report, timeline
from holdfast.cli.output.tables import Table, bar
from holdfast.files.mounted import MountedPath
from holdfast.files.physical_files import PhysicalFile, physical_files
from holdfast.queries.state import StateOfQuery, StoredSegment
from holdfast.regions.coordinator import FailedRegion, HistoryRecord
from support.commands import cells, run
from support.regional.hooks import Hooks
from support.regional.restorable import batches, open_pipeline
from support.regional.restorable import run as run_batches

NOW_MS = 1_700_000_000_000
FIXTURE = Path(__file__).parent.parent / "fixtures" / "state-v1"
WILD = "<script>alert('1 & \"2\"')</script>\x1b[31m\u202e[red]"


def attempt(id: int, outcome: str = "global", *failed: str, **more: object) -> HistoryRecord:
    fields: dict[str, object] = {
        "batch_id": id - 1,
        "kind": "checkpoint",
        "in_flight_rows": 0,
        "cause": "",
        "started_ms": NOW_MS + id * 1_000,
        "ended_ms": NOW_MS + id * 1_000 + 5,
        "run": "a",
    }
    regions = tuple(FailedRegion(region=one, origin=1, cause="disk full") for one in failed)
    return HistoryRecord(id=id, outcome=outcome, failed=regions, **(fields | more))  # type: ignore[arg-type]


def sections(lines: list[str]) -> dict[str, list[list[str]]]:
    """The cells of each section by its title; those of the list before them by the empty one."""
    found: dict[str, list[list[str]]] = {"": []}
    title, is_title = "", False
    for line in lines:
        if is_title:
            title, found[line] = line, []
        elif line:
            found[title].append(cells(line))
        is_title = not line
    return found


def shown(
    folder: Path, *arguments: object, capsys: pytest.CaptureFixture[str]
) -> dict[str, list[list[str]]]:
    status, lines, _ = run(capsys, "show", folder / "ckpt", "--details", *arguments)
    assert status == 0
    return sections(lines)


def titled(found: dict[str, list[list[str]]], title: str) -> list[list[str]]:
    """The rows of the one section whose title begins so, without the head."""
    (rows,) = [rows for name, rows in found.items() if name.startswith(title)]
    return rows[1:]


def test_a_real_pipeline_is_shown_with_its_fallbacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hooks = Hooks()
    with open_pipeline(tmp_path, hooks=hooks, num_retained=2) as query:
        run_batches(query, batches(2))
        hooks.fail_for("r01", range(2_000, 4_000))
        run_batches(query, batches(4), first=2)
    found = shown(tmp_path, capsys=capsys)
    assert [row[0] for row in found[""]] == ["id", "4", "5"]
    outcome, _, in_flight, region = titled(found, "newest attempts")
    assert outcome == ["outcome", "GGGrr", "3 global (G), 2 regional (r), 0 aborted (x)"]
    assert in_flight[2] == "at most 10"
    assert region[:2] == ["r01", "...rr"]
    assert region[2].startswith("failed 2 times, 2 in a row from ")
    assert region[2].endswith("r01 is in trouble")
    regions = titled(found, "regions of checkpoint 5")
    assert regions[0][:3] == ["r01", "fell back", "3"]
    metadata = CheckpointMetadata.read(tmp_path / "ckpt" / "metadata" / f"{5:016x}.hfc")
    stored = sum(ref.length for entry in metadata.regions.values() for _, _, ref in entry.refs())
    operators = titled(found, "operators of checkpoint 5")
    assert sum(int(row[3]) for row in operators) == stored
    assert ["count", str(len(regions))] in [row[:2] for row in operators]
    (file,) = titled(found, "files")
    name, size, live, dead, *_ = file
    path = tmp_path / "ckpt" / "segments" / name
    assert int(size) == path.stat().st_size == int(live) + int(dead)
    assert min(int(live), int(dead)) > 0
    assert f"files: {int(live):,} of {int(size):,} bytes are live" in found
    # The lists that the command prints without it are the same.
    _, lines, _ = run(capsys, "show", tmp_path / "ckpt", "--id", 5)
    assert sorted(regions) == [cells(line) for line in lines[1:]]
    assert titled(shown(tmp_path, "--id", 4, capsys=capsys), "regions of checkpoint 4")


def test_attempts_are_signs_in_their_order() -> None:
    records = [
        attempt(1),
        attempt(2, "regional", "west", in_flight_rows=4),
        attempt(3, "aborted", "west", "east", in_flight_rows=8),
        attempt(4, run="b"),
        attempt(5, "regional", "west", run="b", ended_ms=NOW_MS + 5_040),
    ]
    table = timeline.of_attempts(records)
    assert table.columns == ["attempts", "1 to 5", "2023-11-14T22:13:21Z to 2023-11-14T22:13:25Z"]
    outcome, times, rows, west, east = table.rows
    assert outcome == ["outcome", "Grx|Gr", "2 global (G), 2 regional (r), 1 aborted (x)"]
    assert times == ["time ms", "▂▂▂|▂█", "at most 40"]
    assert rows == ["rows in flight", "▁▅█|▁▁", "at most 8"]
    said = "failed 3 times, 2 in a row from 2023-11-14T22:13:22Z: disk full"
    assert west == ["west", ".rx|.r", said]
    said = "failed 1 times, 1 in a row from 2023-11-14T22:13:23Z: disk full"
    assert east == ["east", "..x|..", said]


def test_a_terminal_with_letters_alone_gets_digits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(io.BytesIO(), encoding="ascii"))
    records = [attempt(1), attempt(2, ended_ms=NOW_MS + 2_010)]
    assert timeline.of_attempts(records).rows[1][1] == "58"


def test_of_very_many_regions_files_and_attempts_the_first_are_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    records = [attempt(id, "regional", *(f"r{n}" for n in range(id))) for id in range(1, 61)]
    rows = timeline.of_attempts(records).rows
    assert len(rows) == 2 + timeline.MAX_REGIONS
    assert (rows[2][0], rows[2][1]) == ("r0", "r" * timeline.MAX_ATTEMPTS)
    regions = [RegionEntry(f"r{number}", origin=1) for number in range(9_999)]
    regions.append(RegionEntry("zoe", origin=1).fell_back("disk full", NOW_MS, []))
    CheckpointMetadata(2, 1, "checkpoint", NOW_MS, b"", regions).write(
        tmp_path / "ckpt" / "metadata"
    )
    found = shown(tmp_path, capsys=capsys)
    title = "regions of checkpoint 2, troubled ones first, the first 50 of 10,000"
    assert len(found[title]) == 1 + report.MAX_LINES
    # What went wrong comes first.
    assert found[title][1][:2] == ["zoe", "fell back"]


def test_what_comes_from_data_is_text_on_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    hooks = Hooks()
    hooks.fail_for("r01", range(1_000, 2_000))
    with open_pipeline(tmp_path, hooks=hooks) as query:
        run_batches(query, batches(2))
    (page,) = (tmp_path / "ckpt" / "history").iterdir()
    page.write_text(page.read_text().replace('"r01', json.dumps(WILD)[:-1]))
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "300")
    for is_there in (True, False):
        monkeypatch.setattr(
            "holdfast.cli.output.report.find_spec", lambda name, there=is_there: there
        )
        status, lines, _ = run(capsys, "show", tmp_path / "ckpt", "--details")
        assert status == 0
        text = "\n".join(lines)
        assert "<script>alert('1 & \"2\"')</script> [31m [red]" in text
        assert "\x1b[31m" not in text
        assert "\u202e" not in text


def test_files_are_live_by_what_is_needed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "0000000000000001-00000001.hf").write_bytes(bytes(100))
    (tmp_path / "0000000000000001-00000002.hf").write_bytes(bytes(10))
    (tmp_path / "notes.txt").write_text("of the user")

    def ref(seq: int, offset: int, length: int) -> SegmentRef:
        numbers = [(1, 8), (seq, 4), (offset, 8), (length, 8), (0, 16)]
        return SegmentRef.from_bytes(b"".join(n.to_bytes(size, "little") for n, size in numbers))

    # Two checkpoints need the same segment.
    needed = [ref(1, 20, 30), ref(1, 20, 30), ref(1, 50, 5), ref(3, 0, 7)]
    found = physical_files(MountedPath(tmp_path), needed)
    assert [(one.bytes, one.live_segments, one.live_bytes, one.dead_bytes) for one in found] == [
        (100, 2, 35, 65),
        (10, 0, 0, 10),
        (None, 1, 7, 0),
    ]
    details._print_files([*found, PhysicalFile(f"{WILD}-00000001.hf", 10, 1, 10)])
    ((title, rows),) = list(sections(capsys.readouterr().out.splitlines()).items())[1:]
    assert title == "files: 52 of 120 bytes are live, and 1 files are missing"
    # Those that are missing come first, then those with the most dead bytes.
    assert [row[1:4] for row in rows[1:]] == [
        ["missing", "7", "0"],
        ["100", "35", "65"],
        ["10", "0", "10"],
        ["10", "10", "0"],
    ]
    assert [row[5].count("#") for row in rows[1:]] == [20, 7, 0, 20]


def test_an_empty_history_and_no_checkpoints_are_no_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ckpt" / "metadata").mkdir(parents=True)
    found = shown(tmp_path, capsys=capsys)
    assert [*found] == ["", "files: 0 of 0 bytes are live"]
    assert len(found[""]) == 1


def test_what_cannot_be_read_is_in_the_exit_status_behind_the_rest(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_pipeline(tmp_path, num_retained=2) as query:
        run_batches(query, batches(2))
    (tmp_path / "ckpt" / "metadata" / f"{2:016x}.hfc").write_bytes(b"")
    (page,) = (tmp_path / "ckpt" / "history").iterdir()
    page.write_text("{}\n" + page.read_text())
    status, lines, err = run(capsys, "show", tmp_path / "ckpt", "--details")
    assert status == 1
    assert "2 parts of the checkpoint cannot be read:" in err
    assert "frame at offset 0" in err
    assert f"{page}, line 1" in err
    assert titled(sections(lines), "regions of checkpoint 3")


# --- queries --------------------------------------------------------------------------------------


@pytest.fixture
def query(tmp_path: Path) -> Path:
    """A checkpoint with the state of a fixture: four changelogs, a base image, a changelog."""
    folder = tmp_path / "ckpt"
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "metadata").write_text('{"id":"<defe868c>"}')
    for batch, id in enumerate((FIXTURE / "ids.txt").read_text().split()):
        state = {"stateUniqueIds": {"0": [[], [], [], [id]]}}
        (folder / "commits" / str(batch)).write_text(f"v2\n{json.dumps(state)}")
    shutil.copytree(FIXTURE / "intact", folder / "state" / "holdfast")
    return tmp_path


def test_batches_stores_and_files_of_a_query_are_shown(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shown(query, capsys=capsys)
    assert found[""][0][0] == "planned batch"
    (store,) = titled(found, "stores of batch 5")
    assert store[:5] == ["0", "3", "default", "6", "4"]
    (operator,) = titled(found, "operators of batch 5")
    assert operator[:2] == ["0", "1"]
    assert operator[2:9] == store[5:12]
    listed = titled(found, "batches in the commit log, newest first")
    assert [row[0] for row in listed] == ["5", "4", "3", "2", "1", "0"]
    assert [row[1] for row in listed] == ["1", "1", "0", "0", "0", "0"]
    assert [row[3] for row in listed] == ["1", "0", "4", "3", "2", "1"]
    figures = [[int(cell) for cell in row[:9]] for row in listed]
    assert all(row[2] + row[4] == row[5] for row in figures)
    # What was written for each of the batches is all that they need together.
    (file,) = titled(found, "files")
    assert sum(row[8] for row in figures) == int(file[2])
    most = max(row[8] for row in figures)
    assert [row[9] for row in listed] == [bar(row[8], most) for row in figures]
    older = shown(query, "--id", 2, capsys=capsys)
    assert titled(older, "stores of batch 2")[0][:5] == ["0", "3", "default", "3", "-"]


def test_damage_of_a_query_is_counted_and_named(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (path,) = (query / "ckpt" / "state" / "holdfast").iterdir()
    shutil.copy(next((FIXTURE / "corrupt-base-image").iterdir()), path)
    status, lines, err = run(capsys, "show", query / "ckpt", "--details")
    assert status == 1
    assert "parts of the checkpoint cannot be read:" in err
    assert "operator 0, partition 3" in err
    assert titled(sections(lines), "batches")[0][7] == "1"  # damaged


def test_a_batch_that_a_running_query_lets_go_of_is_no_damage(
    query: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    (path,) = (query / "ckpt" / "state" / "holdfast").iterdir()
    shutil.copy(next((FIXTURE / "corrupt-base-image").iterdir()), path)
    read = StateOfQuery.segments

    def segments(self: StateOfQuery, batch: int) -> list[StoredSegment]:
        found = list(read(self, batch))
        if any(segment.message for segment in found):
            (query / "ckpt" / "commits" / str(batch)).unlink()
        return found

    monkeypatch.setattr(StateOfQuery, "segments", segments)
    found = shown(query, capsys=capsys)
    assert [row[0] for row in titled(found, "batches")] == ["3", "2", "1", "0"]
    assert titled(found, "stores of batch 3")


def test_a_commit_log_entry_that_cannot_be_read_is_named(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (query / "ckpt" / "commits" / "5").write_text("v2\n[]")
    status, lines, err = run(capsys, "show", query / "ckpt", "--details")
    assert status == 1
    assert "is damaged: put it back from a copy" in err
    found = sections(lines)
    assert titled(found, "batches")[0][0] == "4"
    assert titled(found, "stores of batch 4")
    status, lines, err = run(capsys, "show", query / "ckpt", "--id", 5, "--details")
    assert status == 1
    assert "is damaged: put it back from a copy" in err
    assert titled(sections(lines), "stores of batch 5") == []


def test_a_query_without_state_of_holdfast_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "metadata").write_text('{"id":"q"}')
    status, lines, err = run(capsys, "show", tmp_path / "ckpt", "--details")
    assert (status, len(lines)) == (0, 2)
    assert "which keeps no state" in err
    status, lines, err = run(capsys, "show", tmp_path / "ckpt", "--id", 1, "--details")
    assert (status, lines) == (1, [])
    assert "it holds no checkpoints of a regional pipeline" in err


@pytest.mark.parametrize("id", [0, 9])
def test_an_id_that_is_not_there_is_refused_before_work_begins(
    query: Path, capsys: pytest.CaptureFixture[str], id: int
) -> None:
    (query / "ckpt" / "commits" / "0").unlink()
    status, lines, err = run(capsys, "show", query / "ckpt", "--id", id, "--details")
    assert (status, lines) == (1, [])
    assert f"expected batch {id} in the commit log, found 1 to 5" in err
    assert "verifying" not in err


def test_json_and_details_exclude_each_other(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        run(capsys, "show", query / "ckpt", "--json", "--details")
    assert "not allowed with argument" in capsys.readouterr().err


def test_outcomes_and_bars_have_colours_in_a_terminal(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    words, signs = frozenset({"state", "live"}), frozenset({"live"})
    report.print_table(Table(["state", "live"], [["fell back", "##.."]], words, signs))
    out = capsys.readouterr().out
    assert "\x1b[33mfell back" in out
    assert "\x1b[36m#" in out
    assert "36m." not in out


def test_a_narrow_terminal_gets_every_cell_whole(
    query: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    _, plain, _ = run(capsys, "show", query / "ckpt", "--id", 5)
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "40")
    monkeypatch.setenv("NO_COLOR", "1")
    status, lines, _ = run(capsys, "show", query / "ckpt", "--id", 5)
    assert status == 0
    assert [cells(line) for line in lines[1:]] == [cells(line) for line in plain[1:]]
    assert "separator bytes  filters  filter bytes" in lines[0]
