"""``holdfast show --id`` and ``holdfast verify`` of a query, on state that the core wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from holdfast._core import SegmentReport, inspect_segment
from holdfast.queries.state import StateOfQuery, StoredSegment
from support.commands import cells, run

#: One store of partition 3: four changelogs, a base image, which is a run, and one more changelog.
FIXTURE = Path(__file__).parent.parent / "fixtures" / "state-v1"
(FILE,) = (path.name for path in (FIXTURE / "intact").iterdir())
BATCHES = 6
#: A store whose versions 2 to 4 are parked; the input of the last is in three pieces.
PARKED = FIXTURE.with_name("parked-v1")
#: The first that builds on the base image.
IMAGE_BATCH = 4


@pytest.fixture
def query(tmp_path: Path) -> Path:
    return query_of(tmp_path, FIXTURE)


def query_of(tmp_path: Path, fixture: Path, twin: str = "intact") -> Path:
    folder = tmp_path / "counts"
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "metadata").write_text('{"id":"defe868c-b6a8-4221-ae10-d348ec3c6041"}')
    ids = (fixture / "ids.txt").read_text().split()
    for batch, id in enumerate(ids):
        state = {"stateUniqueIds": {"0": [[], [], [], [id]]}}
        (folder / "commits" / str(batch)).write_text(f"v2\n{json.dumps(state)}")
        (folder / "commits" / f".{batch}.crc").write_text("")
    shutil.copytree(fixture / twin, folder / "state" / "holdfast")
    return folder


def segments(query: Path, batch: int) -> list[StoredSegment]:
    return list(StateOfQuery(query).segments(batch))


def run_of(query: Path) -> StoredSegment:
    """The base image."""
    (segment,) = segments(query, IMAGE_BATCH)
    return segment


def test_show_lists_the_segments_of_a_batch(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, err = run(capsys, "show", query, "--id", IMAGE_BATCH)
    assert (status, err) == (0, "")
    image = run_of(query)
    assert isinstance(image.report, SegmentReport)
    assert [cells(line) for line in lines] == [
        [
            "operator",
            "partition",
            "store",
            "kind",
            "version",
            "entries",
            "bytes",
            "stored bytes",
            "blocks",
            "separator bytes",
            "filters",
            "filter bytes",
            "offset",
            "file",
        ],
        [
            "0",
            "3",
            "default",
            "run",
            "4",
            "4",
            str(image.report.payload_bytes),
            str(image.ref.length),
            "1",
            "1",
            str(image.report.filters),
            str(image.report.filter_bytes),
            str(image.ref.offset),
            FILE,
        ],
    ]
    assert image.report.payload_bytes == 4 * len("?key-0?value-0")
    _, lines, _ = run(capsys, "show", query, "--id", 2)
    assert [cells(line)[3:6] for line in lines[1:]] == [
        ["changelog", str(version), "1"] for version in (1, 2, 3)
    ]
    _, lines, _ = run(capsys, "show", query, "--id", BATCHES - 1)
    assert [cells(line)[3] for line in lines[1:]] == ["run", "changelog"]


def test_show_lists_the_stateful_operators_without_their_state(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    newest = segments(query, BATCHES - 1)[-1].ref.length
    (query / "state" / "holdfast" / FILE).unlink()
    stores = [{"storeName": name, "numPartitions": 4} for name in ("left", "right")]
    for number, name in enumerate(["symmetricHashJoin", None]):
        described = query / "state" / str(number) / "_metadata"
        described.mkdir(parents=True)
        if name is not None:
            found = {"operatorInfo": {"operatorName": name}, "stateStoreInfo": stores}
            (described / "metadata").write_text(f"v1\n{json.dumps(found)}")
    status, lines, _ = run(capsys, "show", query)
    assert (status, lines[2:4]) == (0, ["", f"stateful operators at batch {BATCHES - 1}"])
    assert [cells(line) for line in lines[4:]] == [
        ["operator", "name", "stores", "partitions", "newest segment bytes"],
        ["0", "symmetricHashJoin", "8", "4", str(newest)],
        ["1", "-", "-", "-", "-"],
    ]
    _, lines, _ = run(capsys, "show", query, "--json")
    of_join, undescribed = json.loads("\n".join(lines))["operators"]
    assert of_join == {
        "operator": 0,
        "name": "symmetricHashJoin",
        "stores": 8,
        "partitions": 4,
        "newest_segment_bytes": newest,
    }
    assert {*undescribed.values()} == {1, None}


def test_show_names_a_damaged_description_behind_the_rest(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    metadata = query / "state" / "0" / "_metadata" / "metadata"
    metadata.parent.mkdir(parents=True)
    metadata.write_text("v1\n{")
    for arguments in ([], ["--details"]):
        status, lines, err = run(capsys, "show", query, *arguments)
        assert status == 1
        assert cells(lines[0])[0] == "planned batch"
        assert f"1 parts of the checkpoint cannot be read:\n  {metadata} is damaged" in err


@pytest.mark.parametrize("batch", [-1, 0, 9])
def test_a_batch_that_is_not_in_the_commit_log_is_an_error(
    query: Path, capsys: pytest.CaptureFixture[str], batch: int
) -> None:
    (query / "commits" / "0").unlink()
    status, lines, err = run(capsys, "show", query, "--id", batch)
    assert (status, lines) == (1, [])
    assert err == f"holdfast: {query}: expected batch {batch} in the commit log, found 1 to 5\n"


def test_verify_says_that_there_is_nothing_to_read(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.rmtree(query / "commits")
    status, _, err = run(capsys, "verify", query)
    assert status == 0
    assert err == f"holdfast: {query} has no batch in the commit log: nothing was read\n"


def test_verify_reads_the_state_of_every_batch(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, err = run(capsys, "verify", query)
    assert (status, [cells(line) for line in lines]) == (
        0,
        [
            cells("batch  verdict  readable partitions  partitions  readable segments  segments"),
            ["0", "ok", "1", "1", "1", "1"],
            ["1", "ok", "1", "1", "2", "2"],
            ["2", "ok", "1", "1", "3", "3"],
            ["3", "ok", "1", "1", "4", "4"],
            ["4", "ok", "1", "1", "1", "1"],
            ["5", "ok", "1", "1", "2", "2"],
        ],
    )
    assert err.splitlines() == [f"holdfast: verifying batch {n}" for n in range(BATCHES)]


def test_a_flip_of_every_byte_of_a_run_is_reported_with_file_offset_and_owner(query: Path) -> None:
    image = run_of(query)
    path = query / "state" / "holdfast" / FILE
    good = path.read_bytes()
    first, end = image.ref.offset, image.ref.offset + image.ref.length
    for at in range(first, end):
        path.write_bytes(good[:at] + bytes([good[at] ^ 0x10]) + good[at + 1 :])
        verdict = StateOfQuery(query).verify(IMAGE_BATCH, lambda done, total: None)
        assert (verdict.readable_parts, verdict.readable_segments) == (0, 0), at
        (damage,) = verdict.damage
        assert damage.part == "operator 0, partition 3"
        for part in (str(path), f"offset {first}", "operator 0, partition 3"):
            assert part in damage.message
        # The batches before it do not need it.
        assert not StateOfQuery(query).verify(3, lambda done, total: None).damage
    path.write_bytes(good[: end - 1])
    assert StateOfQuery(query).verify(IMAGE_BATCH, lambda done, total: None).damage


def test_damage_is_printed_and_the_rest_as_well(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    image = run_of(query)
    path = query / "state" / "holdfast" / FILE
    data = bytearray(path.read_bytes())
    data[image.ref.offset + image.ref.length - 1] ^= 1
    path.write_bytes(data)
    status, lines, err = run(capsys, "verify", query)
    assert status == 1
    assert f"state of 2 of 6 batches in {query} is damaged" in err
    assert [cells(line)[1] for line in lines[1:7]] == ["ok"] * 4 + ["damaged"] * 2
    assert [line.split(":")[0] for line in lines[7:]] == ["batch 4", "batch 5"]
    status, lines, err = run(capsys, "show", query, "--id", IMAGE_BATCH)
    assert (status, cells(lines[1])[:4]) == (1, ["0", "3", "-", "damaged"])
    assert f"offset {image.ref.offset}" in err
    verdicts = json.loads("".join(run(capsys, "verify", query, "--json")[1]))["batches"]
    assert [verdict["damaged"] for verdict in verdicts] == [False] * 4 + [True] * 2
    assert verdicts[5]["damage"][0]["partition"] == "operator 0, partition 3"


def test_documents_have_what_the_tables_have(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status, lines, _ = run(capsys, "show", query, "--id", IMAGE_BATCH, "--json")
    assert status == 0
    (segment,) = json.loads("".join(lines))["segments"]
    image = run_of(query)
    assert segment["damage"] is None
    assert (segment["file"], segment["offset"]) == (FILE, image.ref.offset)
    assert (segment["kind"], segment["entries"], segment["version"]) == ("run", 4, 4)
    assert segment["index"]["blocks"] == 1
    (changelog,) = json.loads("".join(run(capsys, "show", query, "--id", 0, "--json")[1]))[
        "segments"
    ]
    assert (changelog["kind"], changelog["index"]) == ("changelog", None)


def test_what_the_commit_log_says_is_checked(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    entry = query / "commits" / "5"
    good = entry.read_text()
    # The state of another partition.
    entry.write_text(good.replace("[[], [], [], [", "[[], [], ["))
    status, lines, _ = run(capsys, "verify", query)
    assert (status, len(lines)) == (1, 8)
    assert "owner: expected operator 0, partition 2, found" in lines[7]
    for text, part in [
        (good.replace("hf1-B", "hf1-C"), "is damaged"),
        (good.replace("hf1-", "hx2-"), "was not written by Holdfast"),
        ("v2\n[", "is damaged: put it back"),
        ("v2\n[]", "is damaged: put it back"),
        ('v2\n{"stateUniqueIds":[1]}', "is damaged: put it back"),
        ('v2\n{"stateUniqueIds":{"a":[["hf1-"]]}}', "is damaged: put it back"),
        ('v2\n{"stateUniqueIds":{"0":7}}', "is damaged: put it back"),
        ('v2\n{"stateUniqueIds":{"0":[[5]]}}', "is damaged: put it back"),
    ]:
        entry.write_text(text)
        status, lines, _ = run(capsys, "verify", query)
        assert (status, len(lines)) == (1, 8)
        assert lines[7].startswith(f"batch 5: {entry}"), lines[7]
        assert part in lines[7]
        status, lines, err = run(capsys, "show", query, "--id", 5)
        assert (status, lines) == (1, [])
        assert part in err
    entry.write_text(good.replace("hf1-", "hf9-"))
    for command in (["verify", query], ["show", query, "--id", 5]):
        status, lines, err = run(capsys, *command)
        assert (status, lines) == (1, [])
        assert f"{entry}, operator 0, partition 3: " in err
        assert "found 9: a newer Holdfast wrote it, and it is intact" in err
    assert run(capsys, "show", query, "--id", 9)[0] == 1
    (query / "state" / "holdfast" / FILE).unlink()
    entry.write_text(good)
    status, lines, _ = run(capsys, "verify", query)
    assert (status, len(lines)) == (1, 1 + BATCHES + BATCHES)
    # A query that keeps no state has nothing to be damaged.
    entry.write_text("v2\n{}")
    assert run(capsys, "show", query, "--id", 5)[0] == 0


def test_a_report_survives_the_way_from_another_process(query: Path) -> None:
    image = run_of(query)
    report = inspect_segment(query / "state" / "holdfast", image.ref)
    assert report == image.report
    assert (report.owner.operator, report.owner.region) == ("0", "3")
    assert report.lineage == []
    with pytest.raises(OSError, match="cannot be decoded"):
        SegmentReport.from_bytes(b"\xff")


def test_pending_input_of_a_parked_partition_is_shown(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = query_of(tmp_path, PARKED)
    status, lines, _ = run(capsys, "show", query, "--id", 3)
    assert status == 0
    shown = [cells(line)[3:7] for line in lines[1:]]
    assert [row[:3] for row in shown] == [
        ["changelog", "1", "1"],
        ["pending_input", "2", "1"],
        ["pending_input", "3", "-"],
        *[["pending_input", "4", "-"]] * 2,
        # The last piece counts all rows.
        ["pending_input", "4", "3"],
    ]
    sizes = [len("input of batch 1"), 0, len("three "), len("pieces"), len("!")]
    assert [row[3] for row in shown[1:]] == [str(size) for size in sizes]
    _, lines, _ = run(capsys, "show", query, "--id", 4)
    assert [cells(line)[3] for line in lines[1:]] == ["changelog", "changelog"]
    status, lines, _ = run(capsys, "verify", query)
    assert status == 0
    assert [cells(line)[4:] for line in lines[1:]] == [
        [str(segments)] * 2 for segments in (1, 2, 3, 6, 2)
    ]
    status, lines, _ = run(capsys, "show", query, "--details")
    assert status == 0


def test_damaged_or_foreign_pending_input_is_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = query_of(tmp_path, PARKED, "corrupt-input")
    status, lines, _ = run(capsys, "verify", query)
    assert status == 1
    assert [cells(line)[1] for line in lines[1:6]] == ["ok", "ok", "ok", "damaged", "ok"]
    assert lines[6].startswith("batch 3: ")
    assert "operator 0, partition 3" in lines[6]
    # In another partition.
    entry = query / "commits" / "1"
    entry.write_text(entry.read_text().replace("[[], [], [], [", "[[], [], ["))
    (foreign,) = [
        one for one in segments(query, 1) if one.ref.offset != segments(query, 0)[0].ref.offset
    ]
    assert foreign.message is not None
    assert (
        "expected ('in_flight', '0', '2'), found ('in_flight', '0', '3'); version: expected 2 to 2,"
        " found 2" in foreign.message
    )
