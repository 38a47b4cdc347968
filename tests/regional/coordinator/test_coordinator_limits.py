"""Limits, forced global attempts, staleness, aborts (C of the semantics)."""

from __future__ import annotations

from typing import Any

import pytest

from holdfast.regions.coordinator import (
    Acked,
    Action,
    CoordinatorOptions,
    CoordinatorSnapshot,
    CoordinatorSnapshotFailed,
    Ended,
    FailQuery,
    GiveUp,
    PublishFailed,
    ResetRegion,
    Retry,
    RunAttempt,
    SnapshotCoordinators,
    Staleness,
    TasksEnded,
    TasksFailed,
    Topology,
    Trigger,
)
from support.regional.coordinator_job import WITH_SOURCE, Job, of, one, regions, rows


def options(**changed: Any) -> CoordinatorOptions:
    return CoordinatorOptions(**{"tolerable_failed_checkpoints": 0, **changed})


def outcomes(job: Job) -> list[str]:
    return [record.outcome for record in job.coordinator.history]


def test_after_enough_regional_checkpoints_the_next_must_be_global() -> None:  # R20, R21
    job = Job(options())
    forced = [
        one(RunAttempt, job.batch(healthy="ab", failed="c")).global_required for _ in range(2)
    ]
    assert forced == [False, False]
    assert (job.latest.consecutive_regional, job.latest.force_global) == (2, True)
    assert one(RunAttempt, job.batch(healthy="abc")).global_required
    assert (job.latest.consecutive_regional, job.latest.force_global) == (0, False)
    assert not one(RunAttempt, job.batch(healthy="ab", failed="c")).global_required


def test_a_forced_attempt_that_is_declined_lets_the_batch_be_regional_again() -> None:  # R10, R21
    # With no tolerance at all: a forced attempt that is declined is no failure of the job.
    job = Job(options())
    for again in (False, False, False, True, False, False, True):
        actions = job.batch(healthy="ab", failed="c", again=again)
        assert of(FailQuery, actions) == []
    assert outcomes(job)[1:] == [
        *("regional", "regional", "aborted", "regional", "regional", "aborted", "regional")
    ]
    assert job.latest.consecutive_regional == 1
    # The region's own count goes on all the same (R22).
    assert job.latest.regions["c"].fallbacks == 5


def test_a_restart_resets_no_counter() -> None:  # R23
    job = Job(options())
    job.batch(healthy="ab", failed="c")
    job.restart()
    assert job.latest.consecutive_regional == 1
    job.batch(healthy="ab", failed="c")
    job.restart()
    assert one(RunAttempt, job.batch(healthy="ab", failed="c")).global_required
    assert outcomes(job) == ["aborted"]
    assert job.latest.regions["c"].fallbacks == 2


def test_a_region_that_reaches_its_bound_is_restarted_once_and_then_fails_the_query() -> None:
    # R22
    job = Job(
        options(max_consecutive_failures=99, max_region_staleness=Staleness(checkpoints=3)),
        WITH_SOURCE,
    )
    job.batch(healthy="abc")
    for _ in range(3):
        assert one(RunAttempt, job.batch(healthy="ab", failed="c")).restart == frozenset()
        job.now_ms += 1_000
    actions = job.trigger()
    assert one(RunAttempt, actions).restart == {"c"}
    # With its origin, and before the coordinator takes its snapshot (R33).
    assert actions.index(ResetRegion(operator="source", region="c", origin=2)) < actions.index(
        one(SnapshotCoordinators, actions)
    )
    job.ack("a")
    job.ack("b")
    job.decline("c", "disk full")
    actions = job.end()
    assert of(Retry, actions) == []
    assert one(FailQuery, actions).error == (
        "region 'c' failed again after it was restarted from checkpoint 2: disk full. Its state is "
        "that of checkpoint 2, it fell back 3 times in a row, for 3.0 s by now"
    )
    assert one(Ended, actions).outcome == "aborted"
    assert job.latest.regions["c"].fallbacks == 3
    with pytest.raises(RuntimeError, match="the query failed: region 'c' failed again"):
        job.trigger()
    # The restart of the driver is a restart of the region too; it is not given more time.
    job.restart()
    actions = job.batch(healthy="ab", failed="c", again=True)
    assert of(FailQuery, actions) != []


def test_a_region_that_recovers_after_its_restart_starts_over() -> None:  # R22, R20
    job = Job(options(max_consecutive_failures=99, max_region_staleness=Staleness(checkpoints=2)))
    for _ in range(2):
        job.batch(healthy="ab", failed="c")
    assert one(RunAttempt, job.batch(healthy="abc")).restart == {"c"}
    actions = job.batch(healthy="ab", failed="c")
    assert one(RunAttempt, actions).restart == frozenset()
    assert job.latest.regions["c"].fallbacks == 1


def test_a_region_that_is_stale_for_too_long_is_restarted() -> None:  # R22
    job = Job(options(max_consecutive_failures=99, max_region_staleness=Staleness(age_ms=500)))
    job.batch(healthy="ab", failed="c")
    job.now_ms += 499
    assert one(RunAttempt, job.batch(healthy="ab", failed="c")).restart == frozenset()
    job.now_ms += 1
    assert one(RunAttempt, job.trigger()).restart == {"c"}
    assert of(FailQuery, job.decline("c")) == []
    job.ack("a")
    assert len(of(FailQuery, job.end())) == 1


def test_a_failing_region_with_too_much_in_flight_data_is_past_its_bound() -> None:  # R58
    job = Job(options(max_consecutive_failures=99, max_in_flight_bytes=250))
    for _ in range(2):
        assert one(RunAttempt, job.batch(healthy="ab", failed="c")).restart == frozenset()
    # 300 bytes are too many, but a healthy region may have them.
    job.batch(healthy="ab", failed="c")
    run = one(RunAttempt, job.trigger())
    assert run.restart == {"c"}
    assert run.owed["c"].in_flight_bytes == 300


def test_in_flight_data_alone_makes_no_region_stale() -> None:  # R58
    job = Job(options(max_in_flight_bytes=1))
    job.trigger()
    acked = type(job.ack("b"))("a", origin=2, in_flight=[rows(2)])
    job.handle(Acked(attempt=2, region="a", entry=acked))
    job.end()
    run = one(RunAttempt, job.trigger())
    assert run.restart == frozenset()
    assert list(run.owed) == ["a"]


def test_pauses_between_attempts_grow_until_a_global_checkpoint() -> None:  # R24
    job = Job(options(tolerable_failed_checkpoints=100, max_consecutive_failures=100))
    pauses = [one(Retry, job.batch(failed="ab", again=i > 0)).pause_ms for i in range(9)]
    assert pauses == [100, 200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]
    # What is the matter may still be: a region falls back.
    job.batch(healthy="a", failed="b", again=True)
    assert one(Retry, job.batch(failed="ab")).pause_ms == 10_000
    job.batch(healthy="ab", again=True)
    assert one(Retry, job.batch(failed="ab")).pause_ms == 100


@pytest.mark.parametrize("what", ["region", "coordinator", "publication", "tasks"])
@pytest.mark.parametrize("regional", [True, False])
def test_what_must_succeed_is_repeated_until_a_bound_in_time(
    what: str, regional: bool
) -> None:  # R24, R25
    job = Job(
        options(global_timeout_ms=120_000, max_consecutive_failures=2 * regional), WITH_SOURCE
    )
    job.batch(healthy="abc")

    def attempt() -> list[Action]:
        actions = job.handle(Trigger(batch_id=0, kind="final", now_ms=job.now_ms))
        id = one(SnapshotCoordinators, actions).attempt
        if what == "coordinator":
            failed = CoordinatorSnapshotFailed(attempt=id, operator="source", cause="boom")
            return job.handle(failed)
        data = CoordinatorSnapshot(attempt=id, operator="source", data=b"")
        job.handle(data)
        if what == "tasks":
            return job.handle(TasksFailed(attempt=id, cause="boom", now_ms=job.now_ms))
        for region in "ab":
            job.ack(region)
        if what == "region":
            return job.fail("c")
        job.ack("c")
        job.handle(TasksEnded(attempt=id, now_ms=job.now_ms))
        return job.handle(PublishFailed(attempt=id, cause="boom", now_ms=job.now_ms))

    begun_ms, attempts = job.now_ms, 1
    while not (failed := of(FailQuery, actions := attempt())):
        retry = one(Retry, actions)
        assert retry.kind == "final"
        job.now_ms += retry.pause_ms
        attempts += 1
    # As a driver has it that waits for as long as it is told.
    assert job.now_ms - begun_ms == 120_000
    assert attempts == 19
    assert failed[0].error.startswith(
        "19 checkpoint attempts that need every region were aborted in 120 s (global_timeout); "
        "the last one"
    )
    assert "boom" in failed[0].error


def test_an_outage_of_two_seconds_at_the_end_of_data_is_waited_out() -> None:  # R24, R25
    job = Job(options())
    job.batch(healthy="abc")
    over_ms, again = job.now_ms + 2_000, False
    while job.now_ms < over_ms:
        job.now_ms += one(Retry, job.batch(failed="abc", kind="final", again=again)).pause_ms
        again = True
    job.batch(healthy="abc", kind="final", again=True)
    assert outcomes(job)[-1] == "global"


def test_the_time_counts_from_the_last_checkpoint() -> None:  # R24, R25
    job = Job(options(global_timeout_ms=1_000))
    job.batch(healthy="abc")
    for _ in range(3):
        for healthy, failed in (("ab", "c"), ("abc", "")):
            job.batch(healthy, failed, kind="final", again=True)
            job.now_ms += 900
    assert outcomes(job)[2:] == ["aborted", "global"] * 3


def test_what_is_optional_is_given_up_and_the_query_goes_on() -> None:  # R25
    job = Job(options(global_timeout_ms=1_000))
    job.batch(healthy="ab", failed="c")
    for _ in range(2):
        actions: list[Action] = []
        for _ in range(2):
            trigger = Trigger(batch_id=0, kind="final", now_ms=job.now_ms, optional=True)
            job.settle(job.handle(trigger))
            actions = job.fail("c")
            job.now_ms += 1_000
        assert one(GiveUp, actions).attempts == 2
        assert of(FailQuery, actions) == []
    job.batch(healthy="abc")
    assert outcomes(job)[-1] == "global"


@pytest.mark.parametrize("tolerable", [0, 1, 3])
def test_too_many_aborts_in_a_row_fail_the_query(tolerable: int) -> None:  # R24
    job = Job(options(tolerable_failed_checkpoints=tolerable))
    for attempt in range(tolerable):
        actions = job.batch(failed="ab", again=attempt > 0)
        assert of(FailQuery, actions) == []
        assert len(of(Retry, actions)) == 1
    assert outcomes(job)[1:] == ["aborted"] * tolerable
    (failed,) = of(FailQuery, job.batch(failed="ab"))
    assert f"tolerable_failed_checkpoints={tolerable}" in failed.error
    assert "too many regions failed" in failed.error


def test_a_completed_checkpoint_clears_the_aborts() -> None:  # R24
    job = Job(options(tolerable_failed_checkpoints=1))
    for _ in range(3):
        job.batch(failed="ab")
        job.batch(healthy="a", failed="b", again=True)
        job.batch(healthy="ab")
    assert outcomes(job)[1:] == ["aborted", "regional", "global"] * 3


@pytest.mark.parametrize("what", ["coordinator", "publication"])
def test_failures_that_are_no_regions_count_in_forced_attempts_too(what: str) -> None:  # R24
    job = Job(options(tolerable_failed_checkpoints=1), WITH_SOURCE)
    for _ in range(2):
        job.batch(healthy="ab", failed="c")
    assert job.latest.force_global
    for allowed in (True, False):
        actions = job.handle(Trigger(batch_id=2, kind="checkpoint", now_ms=1))
        attempt = one(SnapshotCoordinators, actions).attempt
        if what == "coordinator":
            actions = job.handle(
                CoordinatorSnapshotFailed(attempt=attempt, operator="source", cause="boom")
            )
        else:
            data = CoordinatorSnapshot(attempt=attempt, operator="source", data=b"")
            job.settle(job.handle(data))
            job.ack("c")
            job.handle(TasksEnded(attempt=attempt, now_ms=2))
            actions = job.handle(PublishFailed(attempt=attempt, cause="boom", now_ms=3))
        assert bool(of(FailQuery, actions)) is not allowed


def test_no_region_may_fail_with_no_consecutive_failures() -> None:  # R23
    job = Job(options(max_consecutive_failures=0, tolerable_failed_checkpoints=1))
    actions = job.batch(healthy=regions(9), failed=["z"])
    assert one(RunAttempt, actions).global_required
    assert one(Ended, actions).outcome == "aborted"


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"max_failure_ratio": 0}, "max_failure_ratio=0 is not allowed: expected a number above 0"),
        ({"max_failure_ratio": 1.5}, r"max_failure_ratio=1\.5 is not allowed"),
        ({"max_failure_ratio": float("nan")}, "max_failure_ratio=nan is not allowed"),
        ({"max_consecutive_failures": -1}, "max_consecutive_failures=-1 .* at least 0"),
        ({"max_in_flight_bytes": -1}, "max_in_flight_bytes=-1 .* at least 0"),
        ({"num_retained": 0}, "num_retained=0 is not allowed: expected an integer of at least 1"),
        ({"num_retained": True}, "num_retained=True is not allowed"),
        ({"tolerable_failed_checkpoints": 0.5}, r"tolerable_failed_checkpoints=0\.5 is not"),
        ({"global_timeout_ms": -1}, "global_timeout_ms=-1 .* at least 0"),
        ({"history_length": 0}, "history_length=0 is not allowed"),
    ],
)
def test_a_wrong_option_is_refused_with_its_value(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        CoordinatorOptions(**wrong)


@pytest.mark.parametrize("wrong", ["checkpoints", "age_ms"])
def test_a_wrong_staleness_is_refused(wrong: str) -> None:
    with pytest.raises(ValueError, match=f"max_region_staleness.{wrong}=0 is not allowed"):
        Staleness(**{wrong: 0})


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"operators": ("a", "a")}, "names that do not repeat"),
        ({"operators": ("a", "in-flight")}, "no operator called 'in-flight'"),
        ({"coordinators": {"b": True}}, r"coordinators=\['b'\] .* among a"),
    ],
)
def test_a_wrong_topology_is_refused(wrong: dict[str, Any], message: str) -> None:
    right: dict[str, Any] = {"operators": ("a",), "coordinators": {}}
    with pytest.raises(ValueError, match=message):
        Topology(pipeline="p", fingerprint=b"", **{**right, **wrong})
