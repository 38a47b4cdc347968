"""Pages of ``holdfast show --html``: what they say, what is escaped, what is left out."""

from __future__ import annotations

import json
import os
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from holdfast._core import CheckpointMetadata, RegionEntry, SegmentRef
from holdfast.cli.pages import fallbacks, pipeline, timeline
from holdfast.cli.pages.elements import page
from holdfast.cli.pages.parts import size_text
from holdfast.cli.pages.scales import Scale
from holdfast.regions.checkpoint.physical_files import PhysicalFile, physical_files
from holdfast.regions.checkpoint.query_state import StateOfQuery, StoredSegment
from holdfast.regions.checkpoint.read import Summary
from holdfast.regions.coordinator import FailedRegion, HistoryRecord
from support.commands import run
from support.regional.hooks import Hooks
from support.regional.restorable import batches, open_pipeline
from support.regional.restorable import run as run_batches

NOW_MS = 1_700_000_000_000
FIXTURE = Path(__file__).parent.parent / "fixtures" / "state-v3"
WILD = "<script>alert('1 & \"2\"')</script>\x1b[31m\u202e"
_EMPTY = {"meta", "rect", "path"}


class Parsed(HTMLParser):
    """Tags with their attributes, cells of tables, and all text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str | None]] = []
        self.tables: list[list[list[str]]] = []
        self.text = ""
        self._open: list[str] = []
        self.feed(text)
        self.close()
        assert self._open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in _EMPTY:
            self._open.append(tag)
        if tag == "table":
            self.tables.append([])
        elif tag == "tr":
            self.tables[-1].append([])
        elif tag in ("td", "th"):
            self.tables[-1][-1].append("")

    def handle_endtag(self, tag: str) -> None:
        if tag not in _EMPTY:
            assert self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        if "style" not in self._open:
            self.text += data
        if "title" not in self._open and {"td", "th"} & {*self._open}:
            self.tables[-1][-1][-1] += data

    def rows(self, *head: str) -> list[list[str]]:
        """Rows of the table whose head begins so."""
        (found,) = [one[1:] for one in self.tables if one[0][: len(head)] == [*head]]
        return found


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


def facts(
    records: list[HistoryRecord],
    regions: list[RegionEntry] | None = None,
    files: list[PhysicalFile] | None = None,
    *,
    older: bool = False,
    wrong: tuple[str, ...] = (),
    name: str = "sales",
) -> pipeline.PipelineFacts:
    entries = regions if regions is not None else [RegionEntry("west", origin=1)]
    properties = {"pipeline": name}
    metadata = CheckpointMetadata(9, 8, "checkpoint", NOW_MS, b"", entries, properties=properties)
    summary = Summary(metadata, 0, 0, 0, 0, 0)
    return pipeline.PipelineFacts("/ckpt", [summary], metadata, records, older, files or [], wrong)


def parsed(found: pipeline.PipelineFacts) -> Parsed:
    return Parsed(page(pipeline.title_of(found), pipeline.body_of(found)))


def shown(folder: Path, *arguments: object, capsys: pytest.CaptureFixture[str]) -> Parsed:
    """The page that the command writes."""
    file = folder / "page.html"
    status, lines, err = run(capsys, "show", folder / "ckpt", "--html", file, *arguments)
    assert (status, lines) == (0, [])
    assert f"{file} has the page" in err
    return Parsed(file.read_text())


def test_what_comes_from_data_is_text_everywhere() -> None:
    fallen = RegionEntry(WILD, origin=1).fell_back(WILD, NOW_MS, [])
    file = PhysicalFile(f"{WILD}-00000001.hf", 10, 1, 5)
    record = attempt(2, "regional", WILD, run=WILD, cause=WILD)
    found = parsed(facts([record], [fallen], [file], wrong=(WILD,), name=WILD))
    assert {"script", "img", "iframe", "link", "a", "object"}.isdisjoint(found.tags)
    assert not [name for name, _ in found.attributes if name.startswith("on")]
    troubled, regions = found.rows("region", "failed attempts"), found.rows("region", "state")
    attempts, files = found.rows("id", "batch", "kind", "outcome"), found.rows("file")
    for rows in (troubled, regions, attempts, files):
        assert "<script>" in str(rows)
    assert "\x1b" not in found.text
    assert "\u202e" not in found.text
    assert found.text.count("alert('1 & \"2\"')") > 8


def test_a_page_has_no_address_outside_itself() -> None:
    text = page("title", pipeline.body_of(facts([attempt(1), attempt(2, "aborted", "west")])))
    assert re.findall(r"https?:|//|url\(|@import|src=|href=", text) == []
    assert "default-src 'none'; style-src 'unsafe-inline'" in text


def test_a_real_pipeline_is_shown_with_its_fallbacks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    hooks = Hooks()
    with open_pipeline(tmp_path, hooks=hooks, num_retained=2) as query:
        run_batches(query, batches(2))
        hooks.fail_for("r01", range(2_000, 4_000))
        run_batches(query, batches(4), first=2)
    found = shown(tmp_path, capsys=capsys)
    ((region, attempts, longest, ids, _, _, now, cause),) = found.rows("region", "failed attempts")
    assert (region, attempts, longest, ids) == ("r01", "2", "2", "4 to 5")
    assert now == "state of checkpoint 3"
    assert "r01 is in trouble" in cause
    assert "10 rows" in found.text
    checkpoints = found.rows("id", "batch", "kind", "completed")
    assert [row[0] for row in checkpoints] == ["5", "4"]
    attempts_made = found.rows("id", "batch", "kind", "outcome")
    assert [row[0] for row in attempts_made] == ["5", "4", "3", "2", "1"]
    (file,) = found.rows("file")
    name, size, live, dead, *_ = file
    path = tmp_path / "ckpt" / "segments" / name
    assert int(size.replace(",", "")) == path.stat().st_size
    figures = [int(one.replace(",", "")) for one in (live, dead)]
    assert sum(figures) == path.stat().st_size
    assert min(figures) > 0
    # The lists that the other commands print are the same.
    _, lines, _ = run(capsys, "show", tmp_path / "ckpt", "--id", 5)
    regions = found.rows("region", "state")
    assert sorted(row[0] for row in regions) == [line.split()[0] for line in lines[1:]]
    assert regions[0][:3] == ["r01", "fell back", "3"]
    other = shown(tmp_path, "--id", 4, capsys=capsys)
    assert "Regions of checkpoint 4" in other.text


def test_colour_is_not_all_that_tells_outcomes() -> None:
    records = [attempt(1), attempt(2, "regional", "west"), attempt(3, "aborted", "west")]
    text = page("t", [timeline.timeline(records, fallbacks.troubled_regions(records))])
    for outcome, mark in (("regional", "notch"), ("aborted", "cross")):
        assert f": {outcome}, 5 ms" in text
        assert f'class="{mark}"' in text
    assert "Timeline of 3 attempts: 1 global, 1 regional, 1 aborted." in text


def test_fallbacks_are_counted_in_a_row_and_by_time() -> None:
    records = [
        attempt(1),
        attempt(2, "regional", "west"),
        attempt(3, "aborted", "west", "east"),
        attempt(4),
        attempt(5, "regional", "west"),
    ]
    west, east = fallbacks.troubled_regions(records)
    assert (west.region, west.attempts, east.region, east.attempts) == ("west", 3, "east", 1)
    assert [(one.first, one.last) for one in west.fallbacks] == [(1, 2), (4, 4)]
    assert west.longest.ended_ms - west.longest.started_ms == 1_005
    table = fallbacks.of_troubled([west], records, {})
    assert table.rows[0][:5] == ["west", 3, 2, "2 to 3", 1_005]


def test_thousands_of_attempts_and_regions_are_capped_and_the_page_says_so() -> None:
    records = [
        attempt(id, "regional", f"r{id % 700}") if id % 3 else attempt(id) for id in range(1, 5_001)
    ]
    regions = [
        entry.fell_back("disk full", NOW_MS, []) if number == 9_999 else entry
        for number in range(10_000)
        for entry in [RegionEntry(f"r{number}", origin=1)]
    ]
    files = [PhysicalFile(f"{n:016x}-00000001.hf", 100 + n, 1, 50) for n in range(1_000)]
    found = facts(records, regions, files, older=True)
    text = page("t", pipeline.body_of(found))
    assert len(text) < 2_000_000
    told = Parsed(text)
    for said in (
        "These are the newest 5,000 attempts; older ones are left out.",
        "A column stands for up to 21 attempts in a row",
        "500 attempts, newest first; 4,500 more are left out",
        "500 regions; 9,500 more are left out",
        "300 files; 700 more are left out",
        "100 terms; 900 more are left out",
        "The picture has the first 20 of 700.",
    ):
        assert said in told.text
    # What went wrong comes first.
    assert told.rows("region", "state")[0][:2] == ["r9999", "fell back"]
    assert len(timeline.columns_of(records)) <= timeline.MAX_COLUMNS


def test_a_column_of_several_attempts_shows_the_worst() -> None:
    column = timeline.Column([attempt(1), attempt(2, "aborted", "w"), attempt(3, "regional", "w")])
    assert column.outcome == "aborted"
    assert column.said().startswith("attempts 1 to 3: 1 global, 1 regional, 1 aborted; at most 5")


def test_files_are_live_by_what_is_needed(tmp_path: Path) -> None:
    (tmp_path / "0000000000000001-00000001.hf").write_bytes(bytes(100))
    (tmp_path / "0000000000000001-00000002.hf").write_bytes(bytes(10))
    (tmp_path / "notes.txt").write_text("of the user")

    def ref(seq: int, offset: int, length: int) -> SegmentRef:
        numbers = [(1, 8), (seq, 4), (offset, 8), (length, 8), (0, 16)]
        return SegmentRef.from_bytes(b"".join(n.to_bytes(size, "little") for n, size in numbers))

    # Two checkpoints need the same segment.
    found = physical_files(tmp_path, [ref(1, 20, 30), ref(1, 20, 30), ref(1, 50, 5), ref(3, 0, 7)])
    assert [(one.bytes, one.live_segments, one.live_bytes, one.dead_bytes) for one in found] == [
        (100, 2, 35, 65),
        (10, 0, 0, 10),
        (None, 1, 7, 0),
    ]
    told = parsed(facts([], [], found))
    assert "Files that are needed but not there: 1." in told.text
    assert told.rows("file")[0][1:3] == ["missing", "7"]


def test_an_empty_history_and_no_checkpoints_are_said(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ckpt" / "metadata").mkdir(parents=True)
    told = shown(tmp_path, capsys=capsys).text
    assert "There is no checkpoint that can be read." in told
    assert "The folder holds no history of attempts." in told
    assert "There are no files of segments." in told


def test_what_cannot_be_read_is_on_the_page_and_in_the_exit_status(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with open_pipeline(tmp_path, num_retained=2) as query:
        run_batches(query, batches(2))
    (tmp_path / "ckpt" / "metadata" / f"{2:016x}.hfc").write_bytes(b"")
    file = tmp_path / "page.html"
    status, _, err = run(capsys, "show", tmp_path / "ckpt", "--html", file)
    assert status == 1
    assert "1 parts of the checkpoint cannot be read" in err
    told = Parsed(file.read_text())
    assert "frame at offset 0" in told.text
    assert "Regions of checkpoint 3" in told.text


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


def test_a_query_is_shown_with_batches_stores_and_files(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    found = shown(query, capsys=capsys)
    assert "Streaming query <defe868c>" in found.text
    assert "Stores of batch 5" in found.text
    (store,) = found.rows("operator")
    assert store[:5] == ["0", "3", "default", "6", "4"]
    assert store[6] == "1"
    batches = found.rows("batch")
    assert [row[0] for row in batches] == ["5", "4", "3", "2", "1", "0"]
    assert [row[1] for row in batches] == ["1", "1", "0", "0", "0", "0"]
    assert [row[3] for row in batches] == ["1", "0", "4", "3", "2", "1"]
    figures = [[int(cell.replace(",", "")) for cell in row] for row in batches]
    assert all(row[2] + row[4] == row[5] for row in figures)
    # What was written for each of the batches is all that they need together.
    (file,) = found.rows("file")
    assert sum(row[6] for row in figures) == int(file[2].replace(",", ""))
    older = shown(query, "--id", 2, capsys=capsys)
    assert older.rows("operator")[0][:5] == ["0", "3", "default", "3", "-"]


def test_damage_of_a_query_is_on_the_page(query: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (path,) = (query / "ckpt" / "state" / "holdfast").iterdir()
    shutil.copy(next((FIXTURE / "corrupt-base-image").iterdir()), path)
    status, _, err = run(capsys, "show", query / "ckpt", "--html", query / "page.html")
    assert status == 1
    assert "operator 0, partition 3" in err
    told = Parsed((query / "page.html").read_text())
    assert "This cannot be read:" in told.text
    assert told.rows("batch")[0][-1] == "1"


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
    assert [row[0] for row in found.rows("batch")] == ["3", "2", "1", "0"]
    assert "Stores of batch 3" in found.text
    assert "This cannot be read:" not in found.text


def test_a_commit_log_entry_that_cannot_be_read_is_on_the_page(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (query / "ckpt" / "commits" / "5").write_text("v2\n[]")
    status, _, err = run(capsys, "show", query / "ckpt", "--html", query / "page.html")
    assert status == 1
    assert "expected a JSON object" in err
    told = Parsed((query / "page.html").read_text())
    assert "expected a JSON object" in told.text
    assert told.rows("batch")[0][0] == "4"
    assert "Stores of batch 4" in told.text
    run(capsys, "show", query / "ckpt", "--id", 5, "--html", query / "page.html")
    told = Parsed((query / "page.html").read_text())
    assert "Its entry in the commit log cannot be read" in told.text


def test_a_query_without_state_of_holdfast_is_said_to_be_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "metadata").write_text('{"id":"q"}')
    assert "which keeps no state" in shown(tmp_path, capsys=capsys).text
    status, _, err = run(capsys, "show", tmp_path / "ckpt", "--id", 1, "--html", tmp_path / "p")
    assert (status, (tmp_path / "p").exists()) == (1, False)
    assert "it holds no checkpoints of a regional pipeline" in err


# --- the file -------------------------------------------------------------------------------------


@pytest.mark.parametrize("id", [0, 9])
def test_an_id_that_is_not_there_leaves_an_older_page(
    query: Path, capsys: pytest.CaptureFixture[str], id: int
) -> None:
    file = query / "page.html"
    file.write_text("older")
    (query / "ckpt" / "commits" / "0").unlink()
    status, _, err = run(capsys, "show", query / "ckpt", "--id", id, "--html", file)
    assert (status, file.read_text()) == (1, "older")
    assert f"expected batch {id} in the commit log, found 1 to 5" in err


def test_the_page_takes_the_place_of_an_older_one_at_once(
    query: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (query / "real.html").write_text("older")
    (query / "page.html").symlink_to("real.html")
    with (query / "real.html").open() as before:
        shown(query, capsys=capsys)
        assert before.read() == "older"
    assert (query / "page.html").is_symlink()
    assert (query / "real.html").read_text().startswith("<!doctype html>")
    assert sorted(path.name for path in query.iterdir()) == ["ckpt", "page.html", "real.html"]


@pytest.mark.parametrize(
    ("name", "said"),
    [("ckpt", "that is no file"), ("gone/page.html", "is no folder"), ("fifo", "that is no file")],
)
def test_a_page_that_cannot_be_written_is_refused_before_work_begins(
    query: Path, capsys: pytest.CaptureFixture[str], name: str, said: str
) -> None:
    os.mkfifo(query / "fifo")
    status, lines, err = run(capsys, "show", query / "ckpt", "--html", query / name)
    assert (status, lines) == (1, [])
    assert f"the page cannot be written to {query / name}" in err
    assert said in err
    assert "verifying" not in err


def test_a_full_disk_leaves_the_older_page(
    query: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = query / "page.html"
    file.write_text("older")

    def full(self: Path, text: str, encoding: str) -> None:
        self.touch()
        raise OSError(28, "No space left on device", str(self))

    with monkeypatch.context() as patched:
        patched.setattr(Path, "write_text", full)
        status, _, err = run(capsys, "show", query / "ckpt", "--html", file)
    assert (status, file.read_text()) == (1, "older")
    assert "the page cannot be written: No space left on device" in err
    assert sorted(path.name for path in query.iterdir()) == ["ckpt", "page.html"]


def test_json_and_html_exclude_each_other(query: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run(capsys, "show", query / "ckpt", "--json", "--html", "page.html")
    assert "not allowed with argument" in capsys.readouterr().err


# --- scales ---------------------------------------------------------------------------------------


def test_scales_have_round_ticks_within_them() -> None:
    linear = Scale.of([3, 95, 60], 100)
    assert linear.ticks() == [0, 20, 40, 60, 80]
    assert (linear.at(0), linear.at(95)) == (0, 100)
    outlier = Scale.of([4, 500, 450, 480, 10_433], 100)
    assert outlier.logarithmic
    assert outlier.ticks() == [1, 10, 100, 1_000, 10_000]
    assert outlier.at(1) == 0
    assert 50 < outlier.at(480) < outlier.at(10_433) == 100
    assert Scale.of([], 100).ticks()
    assert Scale.linear([5_000], 100).byte_ticks() == [0, 1_024, 2_048, 3_072, 4_096]
    assert Scale.of([0, 0], 100).at(0) == 0


def test_sizes_are_for_people() -> None:
    found = [size_text(size) for size in (0, 1_023, 1_024, 1_572_864, 5 << 40)]
    assert found == ["0 B", "1,023 B", "1.0 KiB", "1.5 MiB", "5.0 TiB"]
