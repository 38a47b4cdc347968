"""Death and failing storage at any change of files: rows equal an undisturbed run (R74, R81)."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from support import environment, preloadable, program
from support.regional.pipeline_crash_job import (
    AWAY,
    BATCHES,
    FILES,
    FLUSHED,
    LARGE_BATCHES,
    LAST_ROWS,
    NONE,
    REGIONS,
    STAYING,
    STUCK,
    WAITING,
)
from support.regional.pipelines import expected, reminders

HERE = Path(__file__).parent
Row = tuple[Any, ...]
EXPECTED = expected(BATCHES)


@pytest.fixture(scope="module")
def crash_calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """crash_calls.c as a library."""
    return preloadable(HERE / "crash_calls.c", tmp_path_factory.mktemp("crash"))


def disturbed(
    case: str, what: str, library: Path, folder: Path, *, step: int, first: int | None = None
) -> list[dict[str, Any]]:
    """What became of pipelines that failed at change `first`, `first` + `step`, and so on.

    By default they begin in the middle of a step.
    """
    first = step // 2 + 1 if first is None else first
    job = [sys.executable, program("regional/pipeline_crash_job.py"), case, what, str(folder)]
    done = subprocess.run(
        [*job, str(first), str(step)],
        env=environment({"LD_PRELOAD": str(library)}),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    return [json.loads(line) for line in done.stdout.splitlines()]


def seen_rows(seen: dict[str, Any], readable: Sequence[Row]) -> list[Row]:
    """Rows that a reader saw, which are some of those that may be read, each once."""
    rows = [tuple(row) for row in seen["rows"]]
    assert len(set(rows)) == len(rows), "no row is doubled"
    assert set(rows) <= set(readable), "what can be read is right"
    return rows


def check_rows(pipeline: dict[str, Any], wanted: Sequence[Row]) -> None:
    for seen in pipeline["after"]:
        rows = seen_rows(seen, wanted)
    assert rows == wanted


def check_deaths(pipelines: Sequence[dict[str, Any]]) -> None:
    deaths = [pipeline["outcomes"].count("killed") for pipeline in pipelines]
    assert sum(deaths) > len(pipelines), "restarts are killed, too"


def check(pipeline: dict[str, Any], flushed: Sequence[tuple[str, int, int, int]] = ()) -> None:
    """Checks what became of a pipeline; `flushed` is what its operators put out in the end."""
    wanted = sorted([*EXPECTED, *flushed])
    for seen in pipeline["after"]:
        rows = seen_rows(seen, wanted)
        emitted = [tuple(row) for row in seen["ids"]]
        assert len(set(emitted)) == len(emitted), "no row of the side output is doubled"
        assert seen["finished"] in (0, len(REGIONS)), "all regions finish at once, or none"
        assert seen["finished"] or set(rows) <= set(EXPECTED), "nothing is published before that"
    last = pipeline["after"][-1]
    assert [tuple(row) for row in last["rows"]] == wanted
    assert [tuple(row) for row in last["ids"]] == [row[:2] for row in EXPECTED]
    assert last["finished"] == len(flushed)
    check_files(pipeline)


def check_splits(pipeline: dict[str, Any]) -> None:
    """Which region reads what may differ; that each split is read once, and by one, may not."""
    for seen in pipeline["after"]:
        by_region: dict[str, list[int]] = {}
        for _, region, count in seen["rows"]:
            by_region.setdefault(region, []).append(count)
        for counts in by_region.values():
            assert sorted(counts) == list(range(1, len(counts) + 1)), "states go on as they were"
    ids = [row_id for row_id, _, _ in pipeline["after"][-1]["rows"]]
    assert ids == [number * 1000 + place for number in range(FILES) for place in range(40)]
    check_files(pipeline)


def check_files(pipeline: dict[str, Any]) -> None:
    assert not any(seen["damage"] for seen in pipeline["after"])
    assert pipeline["outcomes"][-1] == "done"
    # What a write left that was killed, the next write removes; here no other may follow.
    metadata, leftover = pipeline["files"]["ckpt/metadata"], ".hfc.tmp"
    assert len([name for name in metadata if not name.endswith(leftover)]) == 1
    assert len(metadata) <= 2
    assert pipeline["files"]["ckpt/segments"] == pipeline["needed"], "no file is left over"
    assert pipeline["files"]["out/_holdfast"] == pipeline["files"]["ids/_holdfast"] == []


def some_or_all(step: int) -> Any:
    """Every so-manieth change in every run, all of them in the full one."""
    every = pytest.param(1, marks=[pytest.mark.full, pytest.mark.timeout(1800)])
    return pytest.mark.parametrize("step", [step, every], ids=["some", "all"])


@some_or_all(step=11)
def test_a_pipeline_that_was_killed_anywhere_ends_with_the_rows_of_an_undisturbed_run(
    crash_calls: Path, tmp_path: Path, step: int
) -> None:
    pipelines = disturbed("rows", "die_before", crash_calls, tmp_path, step=step)
    for pipeline in pipelines:
        check(pipeline)
    check_deaths(pipelines)
    # Deaths lie before the first checkpoint, between any two, and after the last.
    firsts = [pipeline["after"][0]["checkpoints"] for pipeline in pipelines]
    assert {max(ids, default=0) for ids in firsts} == {0, 1, 2, 3, 4, 5}


@some_or_all(step=23)
def test_splits_are_read_once_wherever_the_process_was_killed(
    crash_calls: Path, tmp_path: Path, step: int
) -> None:
    pipelines = disturbed("splits", "die_before", crash_calls, tmp_path, step=step)
    for pipeline in pipelines:
        check_splits(pipeline)
    check_deaths(pipelines)


@some_or_all(step=3)
def test_death_at_the_end_of_data_loses_nothing_that_is_flushed_and_doubles_none(
    crash_calls: Path, tmp_path: Path, step: int
) -> None:
    def die(case: str, first: int, step: int) -> list[dict[str, Any]]:
        return disturbed(case, "die_before", crash_calls, tmp_path, first=first, step=step)

    pipelines = die("last", 1, step)
    # Until then it is an attempt like any other.
    pipelines += die("end", 5 * step, 10 * step)
    for pipeline in pipelines:
        check(pipeline, FLUSHED)
    # Before and after the last checkpoint was published, and before and after its output was.
    firsts = [
        pipeline["after"][0] for pipeline in pipelines if "killed" in pipeline["outcomes"][:1]
    ]
    states = {(seen["finished"], sum(row[1] == NONE for row in seen["rows"])) for seen in firsts}
    assert {(0, 0), (len(REGIONS), 0), (len(REGIONS), len(REGIONS))} <= states


@some_or_all(step=47)
def test_death_while_a_region_is_retired_publishes_its_last_rows_once(
    crash_calls: Path, tmp_path: Path, step: int
) -> None:
    pipelines = disturbed("retire", "die_before", crash_calls, tmp_path, step=step)
    wanted = sorted([*expected(STAYING), *LAST_ROWS])
    for pipeline in pipelines:
        check_rows(pipeline, wanted)
        assert pipeline["after"][-1]["regions"] == len(REGIONS) - 1
        check_files(pipeline)
    check_deaths(pipelines)


@some_or_all(step=41)
def test_death_while_timers_are_due_fires_each_once(
    crash_calls: Path, tmp_path: Path, step: int
) -> None:
    pipelines = disturbed("timers", "die_before", crash_calls, tmp_path, step=step)
    wanted = sorted([*expected(WAITING), *reminders(WAITING[0], AWAY)])
    for pipeline in pipelines:
        check_rows(pipeline, wanted)
        check_files(pipeline)
    check_deaths(pipelines)


@pytest.mark.full
@pytest.mark.timeout(1800)
def test_death_while_a_large_table_is_merged_loses_none_of_its_rows(
    crash_calls: Path, tmp_path: Path
) -> None:
    pipelines = disturbed("large", "die_before", crash_calls, tmp_path, step=17)
    for pipeline in pipelines:
        check_rows(pipeline, expected(LARGE_BATCHES))
        check_files(pipeline)
    check_deaths(pipelines)


@some_or_all(step=59)
def test_death_beside_a_region_in_quarantine_loses_none_of_its_rows(
    crash_calls: Path, tmp_path: Path, step: int
) -> None:
    pipelines = disturbed("quarantine", "die_before", crash_calls, tmp_path, step=step)
    for pipeline in pipelines:
        *before, last = pipeline["after"]
        for seen in before:
            seen_rows(seen, [row for row in EXPECTED if row[0] != STUCK])
        assert [tuple(row) for row in last["rows"]] == EXPECTED
        assert last["quarantined"] == []
        check_files(pipeline)
    check_deaths(pipelines)
    assert any(pipeline["after"][0]["quarantined"] == [STUCK] for pipeline in pipelines)


@some_or_all(step=17)
def test_storage_that_fails_anywhere_costs_an_attempt_or_a_restart_but_no_row(
    crash_calls: Path, tmp_path: Path, step: int
) -> None:
    pipelines = disturbed("rows", "fail_at", crash_calls, tmp_path, step=step)
    for pipeline in pipelines:
        check(pipeline)
    assert {pipeline["outcomes"][0] for pipeline in pipelines} == {"done", "failed"}
    # A checkpoint more than without trouble: an attempt was aborted, and made again.
    latest = {max(pipeline["after"][0]["checkpoints"], default=0) for pipeline in pipelines}
    assert max(latest) > 5
