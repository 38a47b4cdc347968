"""Attempts from trigger to freeze (A of the semantics), one rule at a time."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest

from holdfast import Owner, SegmentRef
from holdfast._core import RegionEntry
from holdfast.regions.coordinator import (
    INITIAL_BATCH,
    Acked,
    AckedTogether,
    Action,
    AskFallback,
    CheckpointCoordinator,
    CoordinatorOptions,
    CoordinatorSnapshot,
    CoordinatorSnapshotFailed,
    Declined,
    Ended,
    NotifyManagers,
    Publish,
    Published,
    PublishFailed,
    RegionStarted,
    Retry,
    RunAttempt,
    SnapshotCoordinators,
    Start,
    TasksEnded,
    Topology,
    Trigger,
)
from support.regional.coordinator_job import (
    TOPOLOGY,
    WITH_SOURCE,
    Job,
    entry,
    of,
    one,
    regions,
    rows,
)


def test_the_first_start_publishes_empty_states() -> None:  # R26
    job = Job(started=False)
    publish = one(Publish, job.settle(job.handle(Start(now_ms=5))))
    assert (publish.metadata.batch_id, publish.metadata.created_ms) == (INITIAL_BATCH, 5)
    assert dict(publish.metadata.regions) == {}
    assert publish.metadata.is_global


def test_a_region_may_fall_back_in_the_very_first_batch() -> None:  # R26
    job = Job()
    empty = job.latest.id
    job.batch(healthy=["a"], failed=["b"])
    fallen = job.latest.regions["b"]
    assert (fallen.origin, fallen.operators, fallen.fallbacks) == (empty, (), 1)
    assert [stored.created for stored in fallen.in_flight] == [job.latest.id]


def test_operator_coordinators_are_asked_before_tasks_run() -> None:  # R1
    job = Job(topology=WITH_SOURCE)
    actions = job.handle(Trigger(batch_id=0, kind="checkpoint", now_ms=1))
    attempt = one(SnapshotCoordinators, actions).attempt
    assert of(RunAttempt, actions) == []
    answer = CoordinatorSnapshot(attempt=attempt, operator="source", data=b"splits")
    assert one(RunAttempt, job.handle(answer)).attempt == attempt
    assert job.handle(answer) == []


def test_tasks_wait_for_every_operator_coordinator() -> None:  # R1
    both = Topology(
        pipeline="p",
        operators=("source", "sink"),
        coordinators={"source": True, "sink": True},
        fingerprint=b"",
    )
    job = Job(topology=both)
    job.handle(Trigger(batch_id=0, kind="checkpoint", now_ms=1))
    attempt = job.coordinator.pending
    assert attempt is not None
    for _ in range(2):
        event = CoordinatorSnapshot(attempt=attempt, operator="source", data=b"")
        assert job.handle(event) == []
    event = CoordinatorSnapshot(attempt=attempt, operator="sink", data=b"")
    assert len(of(RunAttempt, job.handle(event))) == 1


def test_one_attempt_at_a_time() -> None:  # R1
    job = Job()
    job.trigger()
    with pytest.raises(RuntimeError, match="checkpoint attempt 2 is under way"):
        job.trigger()


def test_ids_rise_over_aborts_and_restarts() -> None:  # R2
    job = Job()
    ids = []
    for _ in range(2):
        job.batch(failed=["a"])
        ids.append(job.last_id)
    job.restart()
    job.batch(healthy=["a"], again=True)
    ids.append(job.last_id)
    assert ids == [2, 3, 4]
    assert job.latest.id == 4


def test_metadata_names_the_batch() -> None:  # R2
    job = Job()
    job.batch(healthy=["a"])
    assert (job.latest.id, job.latest.batch_id) == (2, 0)


def test_the_batch_of_the_latest_checkpoint_is_done() -> None:  # R74
    job = Job()
    job.batch(healthy=["a"])
    job.restart()
    assert job.trigger(batch_id=0) == []
    run = one(RunAttempt, job.trigger("final", batch_id=0))
    assert run.new_rows is False
    job.end()
    assert one(RunAttempt, job.trigger()).new_rows is True


def test_an_older_batch_cannot_be_the_last() -> None:
    job = Job()
    for _ in range(2):
        job.batch(healthy=["a"])
    with pytest.raises(ValueError, match="batch 0 is older than batch 1 of checkpoint 3"):
        job.trigger("final", batch_id=0)


def test_an_acknowledgement_alone_completes_nothing() -> None:  # R3
    job = Job()
    job.trigger()
    job.start("a", "b")
    job.ack("a")
    assert job.coordinator.pending is not None
    job.ack("b")
    assert job.latest.id == 1


def test_a_repeated_acknowledgement_changes_nothing() -> None:  # R3
    job = Job()
    job.trigger()
    acked = job.ack("a")
    event = Acked(attempt=2, region="a", entry=acked)
    assert job.handle(event) == []
    job.end()
    assert job.latest.regions["a"] == acked
    assert job.handle(event) == []


def released(actions: list[Action]) -> Mapping[Owner, Sequence[SegmentRef]]:
    return one(NotifyManagers, actions).released


def state(region: str) -> Owner:
    return Owner("p", "stats", region, "sums")


def in_flight(region: str, created: int) -> Owner:
    return Owner("p", "in-flight", region, str(created))


def refs(acked: RegionEntry) -> tuple[SegmentRef, ...]:
    return tuple(ref for _, _, ref in acked.refs())


def test_a_second_other_acknowledgement_is_released() -> None:  # R3
    job = Job()
    job.trigger()
    acked = job.ack("a")
    other = entry("a", 2)
    event = Acked(attempt=2, region="a", entry=other)
    assert job.handle(event) == job.handle(event) == []
    assert released(job.end()) == {state("a"): refs(other)}
    assert job.latest.regions["a"] == acked
    # After the decision it counts as part of the checkpoint, and goes with it.
    assert job.handle(event) == []


def test_what_a_stored_acknowledgement_shares_is_not_released() -> None:  # R3
    job = Job()
    job.trigger()
    acked = job.ack("a")
    left = rows(2)
    again = RegionEntry("a", origin=2, operators=acked.operators, in_flight=[left])
    assert job.handle(Acked(attempt=2, region="a", entry=again)) == []
    assert released(job.end()) == {in_flight("a", 2): (left.ref,)}


def together(*entries: RegionEntry) -> AckedTogether:
    acks = [Acked(attempt=2, region=entry.region, entry=entry) for entry in entries]
    return AckedTogether(attempt=2, acks=acks)


def test_regions_in_one_file_acknowledge_together() -> None:  # R84
    job = Job()
    job.trigger()
    entries = {region: entry(region, 2) for region in "ab"}
    assert job.handle(together(*entries.values())) == []
    job.end()
    assert job.latest.regions == entries


@pytest.mark.parametrize("declined", [False, True])
def test_none_of_the_regions_in_a_file_counts_if_one_answered_before(declined: bool) -> None:  # R84
    job = Job()
    job.trigger()
    if declined:
        job.handle(Declined(attempt=2, region="b", cause="lost", had_rows=False))
    else:
        job.ack("b")
    refused = [entry(region, 2) for region in "abc"]
    assert job.handle(together(*refused)) == []
    # The task that answered for b answers for the others, too.
    acked = {region: job.ack(region) for region in "ac"}
    notices = released(job.end())
    assert notices == {state(one.region): refs(one) for one in refused}
    assert {region: job.latest.regions[region] for region in "ac"} == acked


def test_regions_in_one_file_that_acknowledge_after_the_freeze_are_released() -> None:  # R84
    job = Job()
    job.trigger()
    job.ack("c")
    actions = job.handle(TasksEnded(attempt=2, now_ms=7))
    late = [entry(region, 2) for region in "ab"]
    assert job.handle(together(*late)) == []
    assert released(job.settle(actions)) == {state(one.region): refs(one) for one in late}
    assert job.latest.regions.keys() == {"c"}


def test_an_aborted_attempt_releases_nothing_because_all_of_it_is_dead() -> None:  # R3, R42
    job = Job()
    job.trigger()
    job.ack("a")
    job.handle(Acked(attempt=2, region="a", entry=entry("a", 2)))
    job.decline("b")
    job.decline("c")
    actions = job.end()
    assert one(Ended, actions).outcome == "aborted"
    assert released(actions) == {}
    late = Acked(attempt=2, region="a", entry=entry("a", 2))
    assert job.handle(late) == []
    job.trigger()
    assert job.handle(late) == []
    assert released(job.end()) == {}


def test_a_decline_waits_for_the_others() -> None:  # R4
    job = Job()
    job.trigger()
    assert job.decline("a") == []
    job.ack("b")
    assert one(Ended, job.end()).outcome == "regional"


def test_a_region_that_is_silent_at_the_freeze_has_declined() -> None:  # R4
    job = Job()
    job.trigger()
    job.start("a", "b", "c")
    job.ack("b")
    # A rescue stored the rows of one region.
    job.decline("c", "rescued")
    actions = job.settle(job.handle(TasksEnded(attempt=2, now_ms=7)))
    record = job.coordinator.history[-1]
    assert {failed.region: failed.cause for failed in record.failed} == {
        "a": "lost",
        "c": "rescued",
    }
    assert record.cause.startswith("too many regions failed: 2 of 3, 1 are allowed")
    assert of(Publish, actions) == []


def test_an_answer_after_the_freeze_is_released() -> None:  # R4
    job = Job(topology=WITH_SOURCE)
    job.trigger()
    job.start("a")
    job.ack("b")
    stored = rows(2)
    job.decline("a", "rescued", in_flight=[stored])
    (ask,) = of(AskFallback, job.handle(TasksEnded(attempt=2, now_ms=7)))
    late, copy = entry("a", 2), rows(2)
    for event in (
        Acked(attempt=2, region="a", entry=late),
        Declined(attempt=2, region="a", cause="late", in_flight=[copy]),
        Declined(attempt=2, region="a", cause="late", in_flight=[stored]),
        RegionStarted(attempt=2, region="z"),
    ):
        assert job.handle(event) == []
    actions = job.settle([ask])
    assert released(actions) == {state("a"): refs(late), in_flight("a", 2): (copy.ref,)}
    assert job.latest.regions["a"].in_flight == (stored,)
    assert "z" not in job.latest.regions


def test_a_task_that_fails_after_its_acknowledgement_is_healthy() -> None:  # R7
    job = Job()
    job.trigger()
    job.ack("b")
    acked = job.ack("a")
    stored = rows(2)
    assert job.decline("a", in_flight=[stored]) == []
    actions = job.end()
    assert one(Ended, actions).outcome == "global"
    assert released(actions) == {in_flight("a", 2): (stored.ref,)}
    assert job.latest.regions["a"] == acked


def test_an_acknowledgement_after_a_decline_is_released() -> None:  # R6
    job = Job()
    job.trigger()
    job.ack("b")
    job.decline("a")
    late = entry("a", 2)
    assert job.handle(Acked(attempt=2, region="a", entry=late)) == []
    actions = job.end()
    assert one(Ended, actions).outcome == "regional"
    assert released(actions) == {state("a"): refs(late)}


def test_rows_are_stored_once_however_often_a_region_declines() -> None:  # R4
    job = Job()
    job.trigger()
    job.ack("b")
    first, second = rows(2), rows(2)
    # The task failed before it had stored its rows; a rescue did, and then another one.
    for stored in ([], [first], [first], [second]):
        assert job.decline("a", in_flight=stored) == []
    assert released(job.end()) == {in_flight("a", 2): (second.ref,)}
    assert job.latest.regions["a"].in_flight == (first,)
    assert job.coordinator.history[-1].in_flight_rows == first.rows


def test_an_acknowledgement_of_an_older_state_is_a_decline() -> None:  # R16
    job = Job()
    job.batch(healthy=["a", "b"])
    job.trigger()
    job.ack("b")
    old = entry("a", 2)
    assert job.handle(Acked(attempt=3, region="a", entry=old)) == []
    assert one(Ended, job.end()).outcome == "aborted"
    assert "acknowledged the state of checkpoint 2" in job.coordinator.history[-1].cause


OFF = [
    (
        CoordinatorOptions(max_consecutive_failures=0, tolerable_failed_checkpoints=9),
        TOPOLOGY,
        "checkpoint",
    ),
    (CoordinatorOptions(), TOPOLOGY, "savepoint"),
]


@pytest.mark.parametrize(("options", "topology", "kind"), OFF)
def test_the_first_decline_aborts_where_all_must_contribute(
    options: CoordinatorOptions, topology: Topology, kind: str
) -> None:  # R8, R23
    job = Job(options, topology)
    run = one(RunAttempt, job.trigger(kind))
    assert run.global_required
    job.ack("a")
    actions = job.decline("b")
    assert one(Ended, actions).outcome == "aborted"
    assert one(Retry, actions).kind == kind
    assert job.coordinator.pending is None


@pytest.mark.parametrize("known", [True, False])
def test_a_restart_after_an_unknown_publication_goes_by_what_is_there(known: bool) -> None:  # R18
    job = Job()
    job.trigger()
    job.ack("a")
    publish = one(Publish, job.handle(TasksEnded(attempt=2, now_ms=9)))
    if known:
        job.disk[2] = publish.metadata
    job.restart()
    assert job.latest.id == (2 if known else 1)
    done = job.trigger(batch_id=0)
    assert (done == []) is known


def test_answers_that_are_not_waited_for_are_no_error() -> None:
    job = Job(topology=WITH_SOURCE)
    for event in (
        TasksEnded(attempt=1, now_ms=1),
        Published(attempt=1, now_ms=1),
        PublishFailed(attempt=1, cause="", now_ms=1),
        CoordinatorSnapshot(attempt=1, operator="source", data=b""),
        CoordinatorSnapshotFailed(attempt=1, operator="source", cause=""),
        RegionStarted(attempt=1, region="a"),
        Declined(attempt=1, region="a", cause=""),
    ):
        assert job.handle(event) == []
    job.trigger()
    assert job.handle(Published(attempt=2, now_ms=1)) == []
    late = CoordinatorSnapshotFailed(attempt=2, operator="source", cause="")
    assert job.handle(late) == []
    assert job.coordinator.pending == 2


def test_a_restart_needs_to_know_from_which_checkpoint() -> None:
    job = Job()
    with pytest.raises(ValueError, match=r"checkpoints \[1\] are retained"):
        CheckpointCoordinator(job.options, TOPOLOGY, retained=[job.latest])


def test_ten_regions_that_are_idle_stay_as_they_are() -> None:
    job = Job()
    job.batch(healthy=regions(10))
    before = dict(job.latest.regions)
    actions = job.batch(healthy=["r3"])
    assert one(Ended, actions).outcome == "global"
    assert one(RunAttempt, actions).owed == {}
    after = dict(job.latest.regions)
    assert {name for name in before if before[name] != after[name]} == {"r3"}
