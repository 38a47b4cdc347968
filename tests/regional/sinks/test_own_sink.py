"""A sink of a user's own, the documented one, in every phase of the protocol."""

from __future__ import annotations

import json
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.regions.protocol.orders import code_of
from support import environment, program
from support.regional.hooks import Hooks
from support.regional.own_sink import SharingSink, SqliteSink, open_pipeline, rows_in
from support.regional.own_sink_job import BATCHES as JOB_BATCHES
from support.regional.pipelines import expected, partitions_of, rows_of
from support.regional.tuned import tune_tasks

REGIONS = ["r00", "r01", "r02", "r03"]
BATCHES = [rows_of(number, REGIONS) for number in range(4)]


def run(query: hf.LocalQuery, count: int, *, first: int = 0) -> None:
    for number in range(first, count):
        query.run_batch(partitions_of(BATCHES[number], 2), batch_id=number)


def of_region(rows: Sequence[tuple[Any, ...]], region: str) -> list[tuple[Any, ...]]:
    return [row for row in rows if row[0] == region]


@pytest.fixture
def database(tmp_path: Path) -> Path:
    return tmp_path / "out.db"


def waiting(database: Path) -> list[str]:
    """What is staged, by attempt."""
    return sorted(path.parent.name for path in database.with_suffix(".waiting").glob("[0-9]*/*"))


# --- commit --------------------------------------------------------------------------------------


def test_every_row_of_a_healthy_pipeline_is_there_once(tmp_path: Path, database: Path) -> None:
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt") as query:
        run(query, 2)
        assert rows_in(database) == expected(BATCHES[:2])
        assert waiting(database) == []
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt") as query:
        run(query, 4)
    assert rows_in(database) == expected(BATCHES)


def test_a_regional_checkpoint_commits_the_healthy_regions_and_the_rest_follows_once(
    tmp_path: Path, database: Path, hooks: Hooks
) -> None:
    # R80
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt", hooks=hooks) as query:
        run(query, 1)
        hooks.fail_for("r02", range(1000, 1030))
        run(query, 2, first=1)
        assert query.latest.failed.keys() == {"r02"}
        both = expected(BATCHES[:2])
        found = rows_in(database)
        assert of_region(found, "r02") == of_region(expected(BATCHES[:1]), "r02")
        assert set(both) - set(found) == set(of_region(both, "r02")[-5:])
        assert waiting(database) == []
        hooks.calm()
        query.finish()
    assert rows_in(database) == both


def test_what_an_aborted_attempt_staged_is_never_committed_and_goes(
    tmp_path: Path, database: Path, hooks: Hooks
) -> None:
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt", hooks=hooks) as query:
        run(query, 1)
        hooks.fail_for("r01", range(1000, 2000))
        query.close()
    with (
        open_pipeline(
            SqliteSink(database), tmp_path / "ckpt", hooks=hooks, max_consecutive_failures=0
        ) as query,
        pytest.raises(hf.RegionalQueryError, match="r01 is in trouble"),
    ):
        run(query, 2, first=1)
    assert rows_in(database) == expected(BATCHES[:1])
    assert waiting(database) != [], "of the regions that did not fail"
    hooks.calm()
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt", hooks=hooks) as query:
        run(query, 2, first=1)
    assert waiting(database) == [], "the next checkpoint has aborted the attempt"
    assert rows_in(database) == expected(BATCHES[:2])


# --- one file for the regions of a task ----------------------------------------------------------


def test_a_sink_that_stages_regions_together_has_every_row_once_also_after_a_fallback(
    tmp_path: Path, database: Path, hooks: Hooks
) -> None:  # R84
    with open_pipeline(SharingSink(database), tmp_path / "ckpt", hooks=hooks) as query:
        run(query, 1)
        hooks.fail_for("r02", range(1000, 1030))
        run(query, 2, first=1)
        assert query.latest.failed.keys() == {"r02"}
        both = expected(BATCHES[:2])
        assert set(both) - set(rows_in(database)) == set(of_region(both, "r02")[-5:])
        hooks.calm()
        run(query, 4, first=2)
    assert rows_in(database) == expected(BATCHES)
    assert waiting(database) == []


class Sharing(SharingSink):
    """Its answers are others as long as a file is there."""

    def __init__(self, database: Path, mark: Path, answered: Any) -> None:
        super().__init__(database)
        self.mark, self.answered = mark, answered

    def stage_together(self, rows: Any, *more: Any) -> Any:
        found = super().stage_together(rows, *more)
        return self.answered(found) if self.mark.exists() and "r02" in found else found

    def commit(self, checkpoint: int, staged: Sequence[hf.Staged]) -> None:
        self.committed = staged
        super().commit(checkpoint, staged)


def no_r02(found: Any) -> Any:
    return {**found, "r02": ValueError("no r02")}


def no_room(found: Any) -> Any:
    raise OSError("no room")


def others(found: Any) -> Any:
    return {"r99": ValueError("no r99")}


def too_few(found: Any) -> Any:
    return {"r02": found["r02"]}


WRONG = r"stage_together\(\) has to return a holdfast.Staged or an error for each region"


@pytest.mark.parametrize(
    ("answered", "failed", "cause"),
    [
        (no_r02, {"r02"}, "ValueError: no r02"),
        (no_room, {"r00", "r02"}, "'Sharing' did not make its output durable: OSError: no room"),
        (others, {"r00", "r02"}, WRONG),
        (too_few, {"r00", "r02"}, WRONG),
    ],
)
def test_rows_that_cannot_be_staged_together_take_no_rows_of_other_regions_along(
    answered: Any,
    failed: set[str],
    cause: str,
    tmp_path: Path,
    database: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # R84
    tune_tasks(monkeypatch.setattr, share_wait_ms=600_000)  # however slow the machine is
    mark = tmp_path / "mark"
    sink = Sharing(database, mark, answered)
    with open_pipeline(sink, tmp_path / "ckpt", max_failure_ratio=0.5) as query:
        run(query, 1)
        assert len({one.path for one in sink.committed}) < len(sink.committed)
        mark.touch()
        run(query, 2, first=1)
        assert query.latest.failed.keys() == failed
        assert all(re.search(cause, query.latest.regions[region].cause) for region in failed)
        assert waiting(database) == [], "the sweep has removed the first files"
        mark.unlink()
        query.finish()
    assert rows_in(database) == expected(BATCHES[:2])


# --- recover -------------------------------------------------------------------------------------


def check_kills(folder: Path, step: int) -> set[int]:
    """Kill pipelines at every `step`-th step of their databases; returns how often each had to."""
    done = subprocess.run(
        [sys.executable, program("regional/own_sink_job.py"), str(folder), str(step)],
        env=environment(),
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-4000:]
    wanted = expected(JOB_BATCHES)
    seen_after_death = set()
    for line in done.stdout.splitlines():
        found = json.loads(line)
        assert found["codes"][-1] == 0, done.stderr[-4000:]
        assert set(found["codes"]) <= {0, -signal.SIGKILL}, done.stderr[-4000:]
        after_death, at_the_end = ([tuple(row) for row in seen] for seen in found["seen"])
        assert after_death == [row for row in wanted if row in after_death], "once, and right"
        # Of a checkpoint readers see everything or nothing.
        assert len(after_death) % len(JOB_BATCHES[0]) == 0
        assert at_the_end == wanted
        assert found["waiting"] == []
        seen_after_death.add(len(after_death))
    return seen_after_death


def test_a_pipeline_that_is_killed_in_a_commit_recovers_exactly_once(tmp_path: Path) -> None:
    # R74, R81
    assert len(check_kills(tmp_path, 211)) > 1


@pytest.mark.full
def test_a_pipeline_that_is_killed_at_any_step_of_a_commit_recovers_exactly_once(
    tmp_path: Path,
) -> None:
    assert len(check_kills(tmp_path, 17)) == len(JOB_BATCHES) + 1


class Noting(SqliteSink):
    """Notes what it is asked for on the driver."""

    def __init__(self, database: Path) -> None:
        super().__init__(database)
        self.calls: list[Any] = []

    def commit(self, checkpoint: int, staged: Sequence[hf.Staged]) -> None:
        self.calls.append(("commit", checkpoint, len(staged), sum(one.rows for one in staged)))
        super().commit(checkpoint, staged)

    def recover(self, checkpoint: int, staged: Sequence[hf.Staged]) -> None:
        self.calls.append(("recover", checkpoint, len(staged)))
        super().recover(checkpoint, staged)

    def sweep(self, before_attempt: int) -> None:
        self.calls.append(("sweep", before_attempt))
        super().sweep(before_attempt)

    def withdraw(self, after_attempt: int) -> None:
        self.calls.append(("withdraw", after_attempt))
        super().withdraw(after_attempt)


def test_the_order_of_calls_is_the_documented_one(tmp_path: Path, database: Path) -> None:
    sink = Noting(database)
    with open_pipeline(sink, tmp_path / "ckpt") as query:
        run(query, 2)
        query.run_batch([[]], batch_id=2)
    of_empty = [("sweep", 2)]
    of_batches = [("commit", 2, 4, 20), ("sweep", 3), ("commit", 3, 4, 20), ("sweep", 4)]
    of_no_rows = [("sweep", 5)]
    assert sink.calls == [*of_empty, *of_batches, *of_no_rows]
    sink = Noting(database)
    with open_pipeline(sink, tmp_path / "ckpt", checkpoint_id=3):
        pass
    # The output was committed, and is the user's.
    assert sink.calls == [("withdraw", 3), ("recover", 3, 0), ("sweep", 4)]
    # By default, output is committed again if nothing says that it was.
    (tmp_path / "ckpt" / "published").unlink()
    sink = Noting(database)
    with open_pipeline(sink, tmp_path / "ckpt"):
        pass
    assert sink.calls == [("recover", 3, 4), ("commit", 3, 4, 20), ("sweep", 4)]
    sink = Noting(database)
    with open_pipeline(sink, tmp_path / "ckpt"):
        pass
    assert sink.calls == [("recover", 3, 0), ("sweep", 4)]
    assert rows_in(database) == expected(BATCHES[:2])


# --- going back, and other pipelines -------------------------------------------------------------


def test_what_is_given_up_is_withdrawn(tmp_path: Path, database: Path) -> None:
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt") as query:
        run(query, 3)
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt", checkpoint_id=3) as query:
        assert rows_in(database) == expected(BATCHES[:2])
        run(query, 4, first=2)
    assert rows_in(database) == expected(BATCHES)


class Lasting(SqliteSink):
    """Cannot take anything back."""

    can_withdraw = False


def test_a_sink_that_cannot_withdraw_has_rows_again_with_a_warning(
    tmp_path: Path, database: Path
) -> None:
    with open_pipeline(Lasting(database), tmp_path / "ckpt") as query:
        run(query, 3)
    again = r"gives up 1 newer ones, and what Lasting\('.*out.db'\) has committed cannot be taken"
    with (
        pytest.warns(UserWarning, match=again),
        open_pipeline(Lasting(database), tmp_path / "ckpt", checkpoint_id=3) as query,
    ):
        run(query, 3, first=2)
    once = expected(BATCHES[:3])
    assert rows_in(database) == sorted([*once, *(row for row in once if row[1] >= 2000)])


def test_the_folder_of_a_sink_belongs_to_one_pipeline(tmp_path: Path, database: Path) -> None:
    # R91
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt") as query:
        run(query, 1)
        with pytest.raises(hf.FolderInUseError):
            open_pipeline(SqliteSink(database), tmp_path / "second")
    with pytest.raises(FileExistsError, match="belongs to pipeline 'pipeline'"):
        open_pipeline(SqliteSink(database), tmp_path / "second")
    assert not (tmp_path / "second").exists()


def test_a_savepoint_goes_on_with_the_same_sink(tmp_path: Path, database: Path) -> None:
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt") as query:
        run(query, 2)
        query.stop_with_savepoint(tmp_path / "saved")
    with open_pipeline(
        SqliteSink(database), tmp_path / "second", restore=hf.restore(tmp_path / "saved")
    ) as query:
        run(query, 4, first=2)
    assert rows_in(database) == expected(BATCHES)


def test_a_savepoint_is_not_restored_behind_later_output(tmp_path: Path, database: Path) -> None:
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt") as query:
        run(query, 2)
        query.stop_with_savepoint(tmp_path / "saved")
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt") as query:
        run(query, 4, first=2)
    with pytest.raises(FileExistsError, match=r"2 files of checkpoints after 3.*'checkpoint 4'"):
        open_pipeline(
            SqliteSink(database), tmp_path / "second", restore=hf.restore(tmp_path / "saved")
        )
    assert rows_in(database) == expected(BATCHES)


# --- what goes wrong -----------------------------------------------------------------------------


class Faulty(SqliteSink):
    """Fails in some of its methods, as long as a file is there."""

    def __init__(self, database: Path, methods: str, mark: Path) -> None:
        super().__init__(database)
        self.methods, self.mark = methods.split(), mark

    def fails_in(self, method: str) -> None:
        if method in self.methods and self.mark.exists():
            raise LookupError(f"no {method} today")

    def writer(self, region: str, attempt: int, schema: pa.Schema) -> Any:
        if region != "r01":
            return super().writer(region, attempt, schema)
        self.fails_in("writer")
        stage = super().writer(region, attempt, schema)
        for name in ("write", "close", "persist", "discard"):
            setattr(stage, name, self.failing(name, getattr(stage, name)))
        return stage

    def failing(self, name: str, method: Any) -> Any:
        def fail_or_do(*arguments: Any) -> Any:
            self.fails_in(name)
            return method(*arguments)

        return fail_or_do

    def commit(self, checkpoint: int, staged: Sequence[hf.Staged]) -> None:
        self.fails_in("commit")
        super().commit(checkpoint, staged)

    def recover(self, checkpoint: int, staged: Sequence[hf.Staged]) -> None:
        self.fails_in("recover")
        super().recover(checkpoint, staged)

    def sweep(self, before_attempt: int) -> None:
        self.fails_in("sweep")
        super().sweep(before_attempt)

    def withdraw(self, after_attempt: int) -> None:
        self.fails_in("withdraw")
        super().withdraw(after_attempt)


class DiscardsNot(Faulty):
    """As `Faulty`, and nothing is discarded then, for a reason of its own."""

    def __init__(
        self, database: Path, method: str, mark: Path, reason: type[BaseException]
    ) -> None:
        super().__init__(database, method, mark)
        self.reason = reason

    def fails_in(self, method: str) -> None:
        super().fails_in(method)
        if method == "discard" and self.mark.exists():
            raise self.reason("no discard today")


@pytest.mark.parametrize("method", ["writer", "write", "close", "persist"])
def test_what_a_worker_raises_makes_its_region_fail_and_names_the_sink(
    method: str, tmp_path: Path, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = tmp_path / "mark"
    with open_pipeline(Faulty(database, method, mark), tmp_path / "ckpt") as query:
        run(query, 1)
        mark.touch()
        run(query, 2, first=1)
        (failed,) = query.latest.failed
        assert failed == "r01"
        told = query.latest.regions["r01"].cause + caplog.text
        assert f"LookupError: no {method} today" in told
        if method != "persist":
            assert "sink 'Faulty' failed in region 'r01' for checkpoint 3 at " in caplog.text
        else:
            assert "sink 'Faulty' did not make its output durable" in told
        mark.unlink()
        query.finish()
    assert rows_in(database) == expected(BATCHES[:2])


class ExitsInPersist(Faulty):
    """Leaves its process as long as a file is there, in `persist` of r01 or of all beside it."""

    def __init__(self, database: Path, mark: Path, *, at_once: bool) -> None:
        super().__init__(database, "persist", mark)
        self.at_once = at_once

    def writer(self, region: str, attempt: int, schema: pa.Schema) -> Any:
        stage = super().writer(region, attempt, schema)
        stage.region = region
        return stage

    def fails_in(self, method: str) -> None:
        if method == "persist" and self.mark.exists():
            sys.exit("no persist today")

    def persist(self, stages: Sequence[Any], store: Any) -> Sequence[BaseException | None]:
        if self.at_once and any(stage.region == "r01" for stage in stages):
            self.fails_in("persist")
        return super().persist(stages, store)


@pytest.mark.parametrize("at_once", [False, True])
def test_a_sink_that_leaves_its_process_fails_its_regions_alone(
    at_once: bool, tmp_path: Path, database: Path
) -> None:
    mark = tmp_path / "mark"
    sink = ExitsInPersist(database, mark, at_once=at_once)
    with open_pipeline(sink, tmp_path / "ckpt", max_failure_ratio=0.5) as query:
        run(query, 1)
        mark.touch()
        run(query, 2, first=1)
        assert "r01" in query.latest.failed
        cause = query.latest.regions["r01"].cause
        assert "'ExitsInPersist' did not make its output durable: SystemExit: no persist" in cause
        mark.unlink()
        query.finish()
    assert rows_in(database) == expected(BATCHES[:2])


@pytest.mark.parametrize("reason", [LookupError, SystemExit])
@pytest.mark.parametrize("before", ["close", "persist"])
def test_a_stage_that_cannot_discard_is_left_to_the_sweep(
    before: str,
    reason: type[BaseException],
    tmp_path: Path,
    database: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    mark = tmp_path / "mark"
    sink = DiscardsNot(database, before, mark, reason)
    # A region that does not answer is not waited for long.
    soon = timedelta(seconds=20)
    with open_pipeline(sink, tmp_path / "ckpt", region_timeout=soon) as query:
        run(query, 1)
        mark.touch()
        run(query, 2, first=1)
        # And no other region of the worker that they share.
        assert query.latest.failed.keys() == {"r01"}
        assert "did not discard the output of region 'r01', attempt 3" in caplog.text
        assert f"{reason.__name__}: no discard today" in caplog.text
        mark.unlink()
        query.finish()
    assert waiting(database) == []
    assert rows_in(database) == expected(BATCHES[:2])


def test_a_commit_that_fails_ends_the_pipeline_and_is_made_good_by_the_next_start(
    tmp_path: Path, database: Path
) -> None:
    mark = tmp_path / "mark"
    with open_pipeline(Faulty(database, "commit", mark), tmp_path / "ckpt") as query:
        run(query, 1)
        mark.touch()
        with pytest.raises(hf.SinkFailedError) as raised:
            run(query, 2, first=1)
        message = str(raised.value)
        assert f"sink Faulty('{database}') could not commit checkpoint 3" in message
        assert "output of region 'r00', 'r01', 'r02', 'r03': LookupError: no commit" in message
        assert isinstance(raised.value.__cause__, LookupError)
        with pytest.raises(hf.RegionalQueryError, match="the pipeline failed before"):
            run(query, 3, first=2)
    with pytest.raises(hf.SinkFailedError, match="could not recover checkpoint 3"):
        open_pipeline(Faulty(database, "recover", mark), tmp_path / "ckpt")
    assert rows_in(database) == expected(BATCHES[:1])
    mark.unlink()
    with open_pipeline(Faulty(database, "commit", mark), tmp_path / "ckpt") as query:
        assert rows_in(database) == expected(BATCHES[:2])
        run(query, 4, first=2)
    assert rows_in(database) == expected(BATCHES)


def test_a_withdrawal_that_fails_is_named_and_goes_on_at_the_next_start(
    tmp_path: Path, database: Path
) -> None:
    mark = tmp_path / "mark"
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt") as query:
        run(query, 3)
    mark.touch()
    with pytest.raises(hf.SinkFailedError, match="withdraw what was committed after checkpoint 3"):
        open_pipeline(Faulty(database, "withdraw", mark), tmp_path / "ckpt", checkpoint_id=3)
    mark.unlink()
    with open_pipeline(SqliteSink(database), tmp_path / "ckpt") as query:
        assert rows_in(database) == expected(BATCHES[:2])
        run(query, 4, first=2)
    assert rows_in(database) == expected(BATCHES)


def test_what_a_predecessor_staged_is_recovered_under_the_name_of_the_sink(
    tmp_path: Path, database: Path
) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    with (
        open_pipeline(Faulty(database, "commit", mark), tmp_path / "ckpt") as query,
        pytest.raises(hf.SinkFailedError),
    ):
        run(query, 1)
    begin = {"restore": hf.restore(tmp_path / "ckpt")}
    with pytest.raises(hf.SinkFailedError, match="could not recover checkpoint 2"):
        open_pipeline(Faulty(database, "recover", mark), tmp_path / "second", **begin)
    assert rows_in(database) == []
    with open_pipeline(SqliteSink(database), tmp_path / "second", **begin) as query:
        assert rows_in(database) == expected(BATCHES[:1])
        run(query, 4, first=1)
    assert rows_in(database) == expected(BATCHES)


def test_a_sweep_that_fails_is_a_warning(
    tmp_path: Path, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    mark = tmp_path / "mark"
    mark.touch()
    with open_pipeline(Faulty(database, "sweep", mark), tmp_path / "ckpt") as query:
        run(query, 2)
        assert "cannot be removed yet" in caplog.text
        assert "LookupError: no sweep today" in caplog.text
        mark.unlink()
        run(query, 3, first=2)
        assert waiting(database) == []
    assert rows_in(database) == expected(BATCHES[:3])


def test_answers_of_another_kind_than_asked_for_are_named(
    tmp_path: Path, database: Path, caplog: pytest.LogCaptureFixture
) -> None:
    class Careless(SqliteSink):
        def writer(self, region: str, attempt: int, schema: pa.Schema) -> Any:
            return super().writer(region, attempt, schema) if region != "r01" else object()

    with open_pipeline(Careless(database), tmp_path / "ckpt") as query:
        run(query, 1)
        assert "writer() returned object, expected a holdfast.Stage" in caplog.text

    class Counting(SqliteSink):
        def persist(self, stages: Sequence[Any], store: Any) -> list[None]:
            return []

    with (
        pytest.raises(hf.RegionalQueryError, match=r"persist\(\) returned 0 answers for"),
        open_pipeline(Counting(tmp_path / "b.db"), tmp_path / "ckpt-b") as query,
    ):
        run(query, 1)


def test_what_is_no_sink_is_refused() -> None:
    pipeline: Any = hf.regional(region_by="region")
    with pytest.raises(TypeError, match=r"takes an instance of holdfast\.TwoPhaseSink, not ABC"):
        pipeline.write_to(SqliteSink)


def test_what_cannot_travel_to_workers_is_named(database: Path) -> None:
    sink = SqliteSink(database)
    sink.connection = sink.connect()
    with pytest.raises(TypeError, match=r"SqliteSink cannot be pickled, .* way to workers"):
        code_of(sink)
