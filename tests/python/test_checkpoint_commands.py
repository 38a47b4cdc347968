"""``holdfast show`` and ``holdfast verify`` on real checkpoint folders."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from holdfast import Owner, SegmentRef, SnapshotManager
from holdfast._core import (
    CheckpointMetadata,
    InFlight,
    OperatorEntry,
    Piece,
    RegionEntry,
    Staged,
    StateEntry,
)
from holdfast.queries.folder import PROVIDER
from support.commands import cells, run

STORE = "spark.sql.streaming.stateStore"

#: 2023-11-14T22:13:20Z.
NOW_MS = 1_700_000_000_000


@dataclass(frozen=True)
class Pipeline:
    """A checkpoint folder: 1 is global; in 2 west fell back; 3 is the last."""

    folder: Path
    east: list[SegmentRef]
    west: SegmentRef
    owed: SegmentRef

    def segment_file(self, ref: SegmentRef) -> Path:
        return self.folder / "segments" / ref.file

    def metadata_file(self, id: int) -> Path:
        return self.folder / "metadata" / f"{id:016x}.hfc"


def owner(region: str) -> Owner:
    return Owner("sales", "stats", region, "sums")


def entry(
    region: str, origin: int, ref: SegmentRef, staged: list[Staged], *, finished: bool = False
) -> RegionEntry:
    sums = StateEntry("sums", "array", "<f8", (4,), pieces=[Piece(ref, 0, 32)])
    operators = [OperatorEntry("stats", [sums], finished=finished)]
    return RegionEntry(region, origin=origin, operators=operators, staged=staged, finished=finished)


@pytest.fixture
def pipeline(tmp_path: Path) -> Pipeline:
    folder = tmp_path / "ckpt"
    east = []
    # A file for every segment, so that damage to one is damage to no other.
    with SnapshotManager(folder / "segments", max_file_bytes=1) as manager:
        west = manager.append(owner("west"), 1, bytes(32))
        for id in (1, 2, 3):
            east.append(manager.append(owner("east"), id, bytes([id]) * 32))
        owed = manager.append(Owner("sales", "in-flight", "west", "2"), 2, b"r", kind="in_flight")
    first = entry("west", 1, west, [])
    fallen = first.fell_back("disk\nfull", NOW_MS, [InFlight(2, "input", 5, 70, ref=owed)])
    staged = [Staged("out/_staged/1", "out/part-1", 3, 900)]
    checkpoints: list[tuple[list[RegionEntry], str]] = [
        ([entry("east", 1, east[0], []), first], "checkpoint"),
        ([entry("east", 2, east[1], staged), fallen], "checkpoint"),
        ([entry("east", 3, east[2], [], finished=True)], "final"),
    ]
    for id, (regions, kind) in enumerate(checkpoints, start=1):
        CheckpointMetadata(
            id,
            id + 9,
            kind,  # type: ignore[arg-type]
            NOW_MS,
            b"",
            regions,
            properties={"pipeline": "sales"},
        ).write(folder / "metadata")
    return Pipeline(folder, east, west, owed)


def test_show_lists_the_checkpoints(pipeline: Pipeline, capsys: pytest.CaptureFixture[str]) -> None:
    status, lines, err = run(capsys, "show", pipeline.folder)
    assert (status, err) == (0, "")
    assert cells(lines[0]) == [
        "id",
        "batch",
        "kind",
        "completed",
        "regions",
        "finished",
        "in-flight rows",
        "in-flight bytes",
        "staged",
        "bytes",
        "failed (origin)",
    ]
    stored = [file.stat().st_size for file in sorted((pipeline.folder / "metadata").iterdir())]
    stored[0] += pipeline.west.length + pipeline.east[0].length
    assert cells(lines[1]) == [
        "1",
        "10",
        "checkpoint",
        "global",
        "2",
        "0",
        "0",
        "0",
        "0",
        str(stored[0]),
        "-",
    ]
    assert cells(lines[2])[:9] == ["2", "11", "checkpoint", "regional", "2", "0", "5", "70", "1"]
    assert cells(lines[2])[10] == "west (1)"
    assert cells(lines[3])[:6] == ["3", "12", "final", "global", "1", "1"]
    assert len(lines) == 4


def test_show_lists_the_regions_of_one(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, err = run(capsys, "show", pipeline.folder, "--id", 2)
    assert (status, err) == (0, "")
    assert [cells(line) for line in lines] == [
        [
            "region",
            "state",
            "origin",
            "fallbacks",
            "stale since",
            "in-flight rows",
            "in-flight bytes",
            "operators",
            "segments",
            "bytes",
            "staged",
            "cause",
        ],
        [
            "east",
            "healthy",
            "2",
            "0",
            "-",
            "0",
            "0",
            "1",
            "1",
            str(pipeline.east[1].length),
            "1",
            "-",
        ],
        [
            "west",
            "fell back",
            "1",
            "1",
            "2023-11-14T22:13:20Z",
            "5",
            "70",
            "1",
            "2",
            str(pipeline.west.length + pipeline.owed.length),
            "0",
            "disk full",
        ],
    ]


def test_show_says_which_regions_have_finished(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    _, lines, _ = run(capsys, "show", pipeline.folder, "--id", 3)
    assert cells(lines[1])[:3] == ["east", "finished", "3"]


def test_words_are_aligned_to_the_left_and_figures_to_the_right(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    _, lines, _ = run(capsys, "show", pipeline.folder)
    words = lines[0].index("completed")
    assert [line[words : words + 9].rstrip() for line in lines[1:]] == [
        "global",
        "regional",
        "global",
    ]
    figures = lines[0].index("regions") + len("regions")
    assert [line[figures - 1] for line in lines[1:]] == ["2", "2", "1"]


def test_many_failed_regions_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    regions = [RegionEntry(f"r{i}", origin=1).fell_back("", NOW_MS, []) for i in range(5)]
    CheckpointMetadata(2, 0, "checkpoint", 0, b"", regions).write(tmp_path / "metadata")
    _, lines, _ = run(capsys, "show", tmp_path)
    assert lines[1].endswith("r0 (1), r1 (1), r2 (1), and 2 more")


def test_show_goes_on_after_a_file_that_cannot_be_read(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    pipeline.metadata_file(2).write_bytes(b"")
    status, lines, err = run(capsys, "show", pipeline.folder)
    assert status == 1
    assert [cells(line)[0] for line in lines] == ["id", "1", "3"]
    assert f"{pipeline.metadata_file(2)}: frame at offset 0" in err


def test_verify_of_intact_checkpoints_succeeds(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, err = run(capsys, "verify", pipeline.folder)
    assert status == 0
    assert [cells(line) for line in lines] == [
        ["id", "verdict", "readable regions", "regions", "readable segments", "segments"],
        ["1", "ok", "2", "2", "2", "2"],
        ["2", "ok", "2", "2", "3", "3"],
        ["3", "ok", "1", "1", "1", "1"],
    ]
    assert "verifying checkpoint 3" in err


def test_verify_reports_a_missing_segment_and_counts_what_is_readable(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    # R75: checkpoint, owner, file; the state of other regions is still readable.
    pipeline.segment_file(pipeline.west).unlink()
    status, lines, err = run(capsys, "verify", pipeline.folder)
    assert status == 1
    assert cells(lines[1]) == ["1", "damaged", "1", "2", "1", "2"]
    assert cells(lines[2]) == ["2", "damaged", "1", "2", "2", "3"]
    assert cells(lines[3])[1] == "ok"
    for line, id in zip(lines[4:], (1, 2), strict=True):
        assert line.startswith(f"checkpoint {id}: segment")
        assert str(pipeline.segment_file(pipeline.west)) in line
        assert str(owner("west")) in line
    assert "2 of 3 checkpoints" in err


def test_verify_reports_a_corrupt_segment_with_its_offset(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    (ref, file) = (pipeline.east[2], pipeline.segment_file(pipeline.east[2]))
    damaged = bytearray(file.read_bytes())
    damaged[ref.offset + ref.length - 1] ^= 1
    file.write_bytes(damaged)
    status, lines, _ = run(capsys, "verify", pipeline.folder)
    assert status == 1
    assert [cells(line)[1] for line in lines[1:4]] == ["ok", "ok", "damaged"]
    (line,) = lines[4:]
    assert line.startswith("checkpoint 3: ")
    assert f"{file} at offset {ref.offset}" in line
    assert str(owner("east")) in line
    assert "digest" in line


def test_verify_reports_metadata_that_cannot_be_read(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    damaged = bytearray(pipeline.metadata_file(1).read_bytes())
    damaged[-1] ^= 1
    pipeline.metadata_file(1).write_bytes(damaged)
    status, lines, _ = run(capsys, "verify", pipeline.folder)
    assert status == 1
    assert cells(lines[1]) == ["1", "damaged", "0", "0", "0", "0"]
    assert cells(lines[2])[1] == "ok"
    assert f"checkpoint 1: checkpoint metadata {pipeline.metadata_file(1)}" in lines[4]


def test_verify_reports_a_piece_beyond_its_segment(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with SnapshotManager(tmp_path / "segments") as manager:
        ref = manager.append(Owner("", "stats", "east", "sums"), 1, bytes(31))
    east = entry("east", 1, ref, [])
    CheckpointMetadata(1, 0, "checkpoint", 0, b"", [east]).write(tmp_path / "metadata")
    status, lines, _ = run(capsys, "verify", tmp_path)
    assert status == 1
    assert cells(lines[1]) == ["1", "damaged", "0", "1", "1", "1"]
    assert "at least 32 bytes, found 31" in lines[2]


def test_verify_takes_the_name_of_the_pipeline(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    assert run(capsys, "verify", pipeline.folder, "--pipeline", "sales")[0] == 0
    status, lines, _ = run(capsys, "verify", pipeline.folder, "--pipeline", "other")
    assert status == 1
    assert "owner: expected pipeline other" in lines[4]


@pytest.mark.parametrize("command", ["show", "verify"])
def test_a_folder_without_checkpoints_is_an_error(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], command: str
) -> None:
    status, lines, err = run(capsys, command, tmp_path)
    assert (status, lines) == (1, [])
    assert f"{tmp_path} holds no checkpoints" in err
    missing = tmp_path / "missing"
    assert run(capsys, command, missing) == (1, [], f"holdfast: {missing} does not exist\n")


def query_folder(folder: Path, *, provider: str = PROVIDER, commits: int = 2) -> Path:
    """The checkpoint of an ordinary query that was killed in batch 2, as Spark writes it."""
    conf = {"conf": {f"{STORE}.providerClass": provider, "spark.sql.shuffle.partitions": "20"}}
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "metadata").write_text('{"id":"defe868c-b6a8-4221-ae10-d348ec3c6041"}')
    for batch in range(3):
        lines = ("v1", json.dumps({"batchWatermarkMs": 0, **conf}), '{"offset":1}')
        (folder / "offsets" / str(batch)).write_text("\n".join(lines))
        (folder / "offsets" / f".{batch}.crc").write_text("")
    for batch in range(commits):
        (folder / "commits" / str(batch)).write_text("v2\n{}")
    if provider == PROVIDER:
        (folder / "state" / "holdfast").mkdir(parents=True)
        (folder / "state" / "holdfast" / "0000000000000001-00000001.hf").write_bytes(bytes(4321))
    else:
        (folder / "state" / "0" / "0").mkdir(parents=True)
    return folder


def test_show_says_what_the_checkpoint_of_an_ordinary_query_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = query_folder(tmp_path / "counts")
    status, lines, err = run(capsys, "show", folder)
    assert (status, [cells(line) for line in lines]) == (
        0,
        [
            ["planned batch", "committed batch", "partitions", "files", "bytes"],
            ["2", "1", "20", "1", "4321"],
        ],
    )
    assert err == (
        f"holdfast: {folder} is the checkpoint of the streaming query "
        "defe868c-b6a8-4221-ae10-d348ec3c6041, whose state is in Holdfast's state store\n"
    )
    assert json.loads("".join(run(capsys, "show", folder, "--json")[1])) == {
        "query": {
            "folder": str(folder),
            "query": "defe868c-b6a8-4221-ae10-d348ec3c6041",
            "planned": 2,
            "committed": 1,
            "provider": PROVIDER,
            "partitions": 20,
            "has_state": True,
            "files": 1,
            "file_bytes": 4321,
        },
        "operators": [],
    }


@pytest.mark.parametrize("arguments", [["verify"], ["show", "--id", "1"]])
def test_what_needs_state_in_holdfast_says_what_the_folder_is(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: list[str]
) -> None:
    folder = query_folder(tmp_path / "counts", provider="com.example.Provider")
    status, lines, err = run(capsys, *arguments, folder)
    assert (status, lines) == (1, [])
    assert f"{folder} is the checkpoint of the streaming query defe868c" in err
    assert "no checkpoints of a regional pipeline" in err


def test_show_names_another_provider(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = query_folder(tmp_path / "counts", provider="com.example.Provider", commits=0)
    status, lines, err = run(capsys, "show", folder)
    assert (status, cells(lines[1])) == (0, ["2", "-", "20", "0", "0"])
    assert "whose state is in com.example.Provider, not in Holdfast" in err


def test_show_of_a_query_that_has_just_been_created(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "metadata").write_text('{"id":"7"}')
    status, lines, err = run(capsys, "show", tmp_path)
    assert (status, cells(lines[1])) == (0, ["-", "-", "-", "0", "0"])
    assert "the streaming query 7, which keeps no state" in err


def test_documents_have_what_the_tables_have(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, err = run(capsys, "show", pipeline.folder, "--json")
    assert (status, err) == (0, "")
    checkpoints = json.loads("\n".join(lines))["checkpoints"]
    assert [(found["id"], found["batch"], found["global"]) for found in checkpoints] == [
        (1, 10, True),
        (2, 11, False),
        (3, 12, True),
    ]
    assert checkpoints[1]["failed"] == [{"region": "west", "origin": 1}]
    assert (checkpoints[1]["in_flight_rows"], checkpoints[1]["in_flight_bytes"]) == (5, 70)
    assert checkpoints[2]["finished_regions"] == 1
    assert checkpoints[0]["properties"] == {"pipeline": "sales"}

    east, west = json.loads("".join(run(capsys, "show", pipeline.folder, "--id", 2, "--json")[1]))[
        "regions"
    ]
    assert (east["region"], east["failed"], east["cause"]) == ("east", False, None)
    assert (west["failed"], west["stale_since_ms"], west["cause"]) == (True, NOW_MS, "disk\nfull")

    pipeline.segment_file(pipeline.east[2]).unlink()
    status, lines, err = run(capsys, "verify", pipeline.folder, "--json")
    assert status == 1
    assert "1 of 3 checkpoints" in err
    verdicts = json.loads("".join(lines))["checkpoints"]
    assert [verdict["damaged"] for verdict in verdicts] == [False, False, True]
    (damage,) = verdicts[2]["damage"]
    assert damage["region"] == "east"
    assert str(pipeline.segment_file(pipeline.east[2])) in damage["message"]


def test_show_of_a_checkpoint_that_is_not_there_is_an_error(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, err = run(capsys, "show", pipeline.folder, "--id", 9)
    assert (status, lines) == (1, [])
    assert str(pipeline.metadata_file(9)) in err


def test_the_commands_need_no_rich(pipeline: Pipeline) -> None:
    hidden = "import sys; sys.modules['rich'] = None; from holdfast.cli.main import main; "
    for command in ("show", "verify"):
        program = f"{hidden} sys.exit(main([{command!r}, {str(pipeline.folder)!r}]))"
        done = subprocess.run(
            [sys.executable, "-c", program], check=False, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr
        assert len(done.stdout.splitlines()) == 4


@pytest.mark.parametrize("command", ["show", "show --json", "verify"])
def test_a_reader_that_went_away_is_no_error(pipeline: Pipeline, command: str) -> None:
    reading, writing = os.pipe()
    os.close(reading)
    with open(writing, "wb") as nobody_reads:
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *command.split(), str(pipeline.folder)],
            check=False,
            stdout=nobody_reads,
            stderr=subprocess.PIPE,
            text=True,
        )
    said = [line for line in done.stderr.splitlines() if "verifying" not in line]
    assert (done.returncode, said) == (128 + signal.SIGPIPE, [])


@pytest.mark.parametrize("closed", ["1", "2"])
def test_a_command_without_stdout_or_stderr_does_its_work(pipeline: Pipeline, closed: str) -> None:
    done = subprocess.run(
        [
            "sh",
            "-c",
            f"exec {sys.executable} -m holdfast verify --json '{pipeline.folder}' {closed}>&-",
        ],
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0
    if closed == "1":
        assert "Traceback" not in done.stderr
    else:
        assert len(json.loads(done.stdout)["checkpoints"]) == 3


def test_an_interrupted_command_says_nothing_more(
    pipeline: Pipeline, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(arguments: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("holdfast.cli.checkpoints.show", interrupted)
    assert run(capsys, "show", pipeline.folder) == (128 + signal.SIGINT, [], "")


@pytest.mark.parametrize("rich", [True, False], ids=["with rich", "without rich"])
def test_a_terminal_gets_a_table_with_every_figure(
    pipeline: Pipeline,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    rich: bool,
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True, raising=False)
    monkeypatch.setattr("sys.stderr.isatty", lambda: True, raising=False)
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setenv("NO_COLOR", "1")
    if not rich:
        monkeypatch.setattr("holdfast.cli.output.report.find_spec", lambda name: None)
    status, lines, _ = run(capsys, "show", pipeline.folder)
    assert status == 0
    assert cells(lines[2])[:4] == ["2", "11", "checkpoint", "regional"]
    status, _, err = run(capsys, "verify", pipeline.folder)
    assert status == 0
    assert ("holdfast: verifying" in err) != rich
