"""The history of checkpoints is a table that a person can read."""

from __future__ import annotations

import importlib.util
import io
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast._core import (
    CheckpointMetadata,
    OperatorEntry,
    Piece,
    RegionEntry,
    SegmentRef,
    StateEntry,
)
from holdfast.regions.coordinator import FailedRegion, HistoryRecord, Outcome
from holdfast.regions.driver import history as progress
from holdfast.regions.driver.history import (
    HistoryRow,
    history_rows,
    history_table,
    print_history,
)

REF = SegmentRef.from_bytes(bytes(range(44)))
OTHER_REF = SegmentRef.from_bytes(bytes(range(1, 45)))

JFK = FailedRegion(region="JFK", origin=1, cause="KeyError: 7")


def row(id: int, batch: int, outcome: Outcome, *, ms: int = 0, **more: Any) -> HistoryRow:
    times = {"started_ms": 1_000, "ended_ms": 1_000 + ms}
    fields = {"id": id, "batch_id": batch, "kind": "checkpoint", "outcome": outcome}
    return HistoryRow(**(fields | times | more))


ROWS = [
    row(1, 0, "global", files=2, bytes=4096, ms=250),
    row(
        2,
        1,
        "regional",
        failed=(JFK, FailedRegion(region="EWR", origin=1, cause="expired")),
        in_flight_rows=1234,
        files=3,
        bytes=1_048_576,
        ms=1300,
    ),
    row(10, 2, "aborted", failed=(JFK,), cause="last one", ms=12),
]
TABLE = """\
id  batch  outcome   failed regions                   in-flight rows  files      bytes  time ms
 1      0  global                                                  0      2      4,096      250
 2      1  regional  JFK at 1: KeyError: 7 +1 more             1,234      3  1,048,576    1,300
10      2  aborted   last one; JFK at 1: KeyError: 7               0      0          0       12
"""


def printed(rows: list[HistoryRow]) -> str:
    out = io.StringIO()
    print_history(rows, file=out)
    return out.getvalue()


def test_figures_are_aligned_to_the_right_and_words_to_the_left() -> None:
    assert history_table(ROWS) + "\n" == TABLE


def test_regions_beyond_those_that_are_named_are_counted() -> None:
    failed = tuple(FailedRegion(region=f"r{n}", origin=n, cause="x") for n in range(1500))
    one = row(1, 1, "regional", failed=failed)
    assert "r0 at 0: x +1,499 more " in history_table([one])
    assert "r0 at 0: x; r1 at 1: x +1,498 more " in history_table([one], max_failed=2)
    assert "more" not in history_table([one], max_failed=1500)


def test_a_long_cause_is_cut_and_stays_on_one_line() -> None:
    failed = FailedRegion(region="r\n1", origin=None, cause="Error:\n  " + "many words " * 20)
    one = row(1, 1, "aborted", failed=(failed,))
    head, line = history_table([one]).split("\n")
    assert "r 1: Error: many words many words many words…  " in line
    assert len(head) == len(line)


def test_an_empty_history_is_a_head() -> None:
    assert history_table([]).split() == TABLE.split("\n")[0].split()


@pytest.mark.parametrize("rich", [True, False])
def test_what_is_printed_is_the_same_with_and_without_rich(
    monkeypatch: pytest.MonkeyPatch, rich: bool
) -> None:
    # Not even a narrow screen breaks or cuts a line.
    monkeypatch.setenv("COLUMNS", "20")
    find = importlib.util.find_spec
    monkeypatch.setattr(
        importlib.util, "find_spec", lambda name: find(name) if rich and name == "rich" else None
    )
    assert printed(ROWS) == TABLE


def test_colours_show_the_outcome_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    head, first, second, third, _ = printed(ROWS).split("\n")
    assert "\x1b[1m" in head
    assert "\x1b[32m" in first
    assert "\x1b[33m" in second
    assert "\x1b[31m" in third


def test_standard_output_is_where_the_table_goes(capsys: pytest.CaptureFixture[str]) -> None:
    progress.print_history(ROWS)
    assert capsys.readouterr().out == TABLE


def test_rows_are_made_of_what_the_coordinator_remembers(tmp_path: Path) -> None:
    record = HistoryRecord(
        id=2,
        batch_id=1,
        kind="checkpoint",
        outcome="regional",
        failed=(JFK,),
        in_flight_rows=1234,
        cause="",
        started_ms=1_000,
        ended_ms=2_300,
    )
    state = StateEntry("sum", "array", "<i8", (2,), pieces=[Piece(REF, 0, 16)])
    other = StateEntry("max", "array", "<i8", (2,), pieces=[Piece(OTHER_REF, 0, 16)])
    entries = [
        RegionEntry("EWR", origin=2, operators=[OperatorEntry("delays", [state, other])]),
        RegionEntry("JFK", origin=1, failed=True, fallbacks=1, stale_since_ms=1, cause="x"),
    ]
    metadata = CheckpointMetadata(2, 1, "checkpoint", 0, b"", entries)
    (tmp_path / "metadata").mkdir()
    metadata.write(tmp_path / "metadata")
    gone = replace(record, id=1, outcome="global", failed=())
    aborted = replace(record, id=3, outcome="aborted", cause="last one")
    rows = history_rows([gone, record, aborted], checkpoint=tmp_path)
    assert rows[1] == row(
        2,
        1,
        "regional",
        failed=(JFK,),
        in_flight_rows=1234,
        files=2,
        bytes=REF.length + OTHER_REF.length,
        ms=1300,
    )
    assert (rows[0].files, rows[0].bytes) == (None, None)
    assert history_table(rows[:1]).split("\n")[1].endswith("1,234      -      -    1,300")
    assert (rows[2].files, rows[2].bytes, rows[2].cause) == (0, 0, "last one")


def test_naming_no_region_is_refused() -> None:
    with pytest.raises(ValueError, match="max_failed=0 is not allowed"):
        history_table(ROWS, max_failed=0)
