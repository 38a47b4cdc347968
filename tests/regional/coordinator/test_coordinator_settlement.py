"""Who is told what, what is retained, and finished regions (D, E, G and H of the semantics)."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast import Owner
from holdfast._core import RegionEntry, Staged
from holdfast.regions.coordinator import (
    Acked,
    CheckpointCoordinator,
    CommitSinks,
    CoordinatorOptions,
    CoordinatorSnapshotFailed,
    DropMetadata,
    Ended,
    FailQuery,
    FallbackSnapshot,
    FallbackSnapshotFailed,
    MetadataDropped,
    NoticeDelivered,
    NotifyCoordinator,
    NotifyManagers,
    Publish,
    Published,
    ResetCoordinator,
    ResetRegion,
    Retry,
    RunAttempt,
    Start,
    TasksEnded,
    Trigger,
)
from holdfast.regions.coordinator.options import Bounds
from support.regional.coordinator_job import TOPOLOGY, WITH_SOURCE, Job, of, one, ref, rows

MANY = CoordinatorOptions(max_consecutive_failures=99, tolerable_failed_checkpoints=99)


def state(region: str, store: str = "sums") -> Owner:
    return Owner("p", "stats", region, store)


def in_flight(region: str, created: int) -> Owner:
    return Owner("p", "in-flight", region, str(created))


def origins(message: NotifyManagers) -> set[int]:
    """Return every id whose segments a retained checkpoint needs."""
    return set(message.retained).union(*(moved.values() for moved in message.retained.values()))


# --- operator coordinators ------------------------------------------------------------------------


def test_coordinators_hear_the_effective_id_of_every_region() -> None:  # R34
    job = Job(MANY, WITH_SOURCE)
    job.batch(healthy="abcd")
    job.batch(healthy="ab", failed="c")
    actions = job.batch(healthy="a", failed="c")
    # A region that is idle is covered up to the checkpoint: it got nothing.
    assert of(NotifyCoordinator, actions) == [
        NotifyCoordinator(
            operator="source",
            kind="completed",
            attempt=4,
            effective={"a": 4, "b": 4, "c": 2, "d": 4},
            took_part=frozenset("a"),
        )
    ]


def test_an_exception_in_a_snapshot_aborts_the_attempt() -> None:  # R35
    job = Job(MANY, WITH_SOURCE)
    job.handle(Trigger(batch_id=0, kind="checkpoint", now_ms=1))
    event = CoordinatorSnapshotFailed(attempt=2, operator="source", cause="no such table")
    actions = job.handle(event)
    assert one(Ended, actions).cause == (
        "the coordinator of an operator failed: 'source': no such table"
    )
    assert one(NotifyCoordinator, actions).kind == "aborted"


def test_a_correction_that_fails_aborts_the_attempt() -> None:  # R17, R18
    job = Job(MANY, WITH_SOURCE)
    job.trigger()
    job.ack("a")
    job.decline("b")
    job.handle(TasksEnded(attempt=2, now_ms=2))
    event = FallbackSnapshotFailed(attempt=2, operator="source", cause="unknown split")
    actions = job.handle(event)
    assert one(Ended, actions).outcome == "aborted"
    assert of(Publish, actions) == []


def test_coordinators_go_back_with_all_regions_when_an_attempt_that_ran_is_aborted() -> None:
    # R33
    job = Job(MANY, WITH_SOURCE, started=False)
    assert one(ResetCoordinator, job.handle(Start(now_ms=1))).snapshot is None
    job = Job(MANY, WITH_SOURCE)
    job.batch(healthy="ab", failed="c")
    back = [ResetCoordinator(operator="source", snapshot=b"corrected", regions=frozenset("abc"))]
    assert of(ResetCoordinator, job.batch(failed="abc")) == back
    assert of(ResetCoordinator, job.restart()) == back
    # No task had begun: what was sent to regions will still arrive.
    job.handle(Trigger(batch_id=1, kind="checkpoint", now_ms=1))
    attempt = job.coordinator.pending
    assert attempt is not None
    event = CoordinatorSnapshotFailed(attempt=attempt, operator="source", cause="boom")
    assert of(ResetCoordinator, job.handle(event)) == []


def test_coordinators_hear_once_of_a_region_that_goes_on_from_its_origin() -> None:  # R33
    job = Job(MANY, WITH_SOURCE)
    job.batch(healthy="abc")
    assert of(ResetRegion, job.batch(healthy="ab", failed="c")) == []
    reset = [ResetRegion(operator="source", region="c", origin=2)]
    # Once per fallback, and always with the origin.
    assert of(ResetRegion, job.batch(healthy="ab", failed="c")) == reset
    assert of(ResetRegion, job.batch(healthy="abc")) == reset
    assert of(ResetRegion, job.batch(healthy="abc")) == []


# --- notices --------------------------------------------------------------------------------------


def test_an_abort_says_completed_of_nothing_and_touches_no_checkpoint() -> None:  # R42, R43
    job = Job(MANY)
    job.batch(healthy="abc")
    job.batch(healthy="ab", failed="c")
    actions = job.batch(healthy="a", failed="bc")
    message = one(NotifyManagers, actions)
    assert (message.message, message.checkpoint, message.decided) == ("aborted", 4, 4)
    assert message.retained == {1: {}, 2: {}, 3: {state("c"): 2}}
    assert of(CommitSinks, actions) == of(DropMetadata, actions) == []


def test_sinks_commit_what_took_part_and_did_not_fail() -> None:  # R80
    job = Job(MANY)
    job.batch(healthy="abcd")
    actions = job.batch(healthy="ab", failed="c")
    assert of(CommitSinks, actions) == [CommitSinks(attempt=3, regions=frozenset("ab"))]
    assert of(CommitSinks, job.restart()) == [CommitSinks(attempt=3, regions=frozenset("ab"))]


def test_what_sinks_staged_belongs_to_one_checkpoint() -> None:  # R80
    job = Job(MANY)
    job.trigger()
    for region in "abc":
        staged = Staged("staged/2/part", f"part-2-{region}", 1, 10)
        acked = RegionEntry(region, origin=2, staged=[staged])
        job.handle(Acked(attempt=2, region=region, entry=acked))
    job.end()
    assert all(len(entry.staged) == 1 for entry in job.latest.regions.values())
    job.batch(healthy="b", failed="c")
    # Neither an idle region nor one that fell back may commit it again under another id.
    assert [entry.staged for entry in job.latest.regions.values()] == [()] * 3


def test_a_restart_repeats_what_follows_a_publication() -> None:  # R74
    job = Job(CoordinatorOptions(num_retained=1), WITH_SOURCE)
    job.batch(healthy="abc")
    job.trigger()
    job.ack("a")
    job.ack("b")
    job.decline("c")
    job.handle(TasksEnded(attempt=3, now_ms=9))
    fallback = FallbackSnapshot(attempt=3, operator="source", data=b"")
    publish = one(Publish, job.handle(fallback))
    job.disk[3] = publish.metadata
    expected = job.handle(Published(attempt=3, now_ms=9))
    expected += job.handle(MetadataDropped(ids=one(DropMetadata, expected).ids))
    job.last_id = 5  # Two attempts of which nothing was published.
    repeated = job.restart()
    for kind in (CommitSinks, DropMetadata, NotifyCoordinator):
        assert of(kind, repeated) == of(kind, expected)
    message, again = one(NotifyManagers, expected), one(NotifyManagers, repeated)
    assert again == dataclasses.replace(message, decided=5)
    assert of(RunAttempt, repeated) == []


# --- views and retention --------------------------------------------------------------------------


def test_managers_hear_of_every_owner_with_an_older_origin() -> None:  # R44, R70
    job = Job(dataclasses.replace(MANY, num_retained=2))
    first = one(NotifyManagers, job.batch(healthy="abc"))
    assert (first.message, first.fallbacks) == ("completed", {})
    job.batch(healthy="ab", failed="c")
    message = one(NotifyManagers, job.batch(healthy="a", failed="c"))
    assert message.message == "partially_completed"
    assert message.retained == {
        3: {state("c"): 2},
        4: {state("c"): 2, in_flight("c", 3): 3, state("b"): 3},
    }
    assert message.fallbacks == message.retained[4]
    assert origins(message) == {2, 3, 4}


def test_managers_hear_less_often_if_very_many_owners_have_an_older_origin() -> None:  # R43
    bounds = Bounds(resting_told=2, resting_for_an_answer=2, bytes_for_a_resting=1 << 60)
    options = dataclasses.replace(MANY, num_retained=2, bounds=bounds)
    job = Job(options)
    job.batch(healthy="abcdef")
    told = [of(NotifyManagers, job.batch(healthy="a")) for _ in range(6)]
    assert [len(messages) for messages in told] == [0, 0, 1, 0, 0, 1]
    (message,) = told[-1]
    assert (message.checkpoint, message.decided) == (8, 8)
    assert message.retained.keys() == {7, 8}
    # Each answer refers to a segment that counts as one region.
    bounds = dataclasses.replace(bounds, bytes_for_a_resting=ref().length)
    job = Job(dataclasses.replace(options, bounds=bounds))
    job.batch(healthy="abcdef")
    told = [of(NotifyManagers, job.batch(healthy="a")) for _ in range(4)]
    assert [len(messages) for messages in told] == [0, 1, 0, 1]
    # A refused answer is named in no other message.
    job.trigger()
    job.ack("a")
    job.ack("a", operator="other")
    assert one(NotifyManagers, job.end()).released


def test_a_global_checkpoint_completes_partially_where_regions_are_idle() -> None:
    # The manager refuses `completed` with fallbacks in the view.
    job = Job(MANY)
    job.batch(healthy="ab")
    actions = job.batch(healthy="a")
    assert one(Ended, actions).outcome == "global"
    message = one(NotifyManagers, actions)
    assert (message.message, message.fallbacks) == ("partially_completed", {state("b"): 2})


def test_state_that_only_a_failed_attempt_wrote_is_named_to_managers() -> None:
    # The base of region c is empty, so it names nothing; what c wrote must die all the same.
    job = Job(MANY)
    message = one(NotifyManagers, job.batch(healthy="ab", failed="c"))
    assert message.fallbacks == {state("c"): 1}


def test_an_owner_is_named_after_the_state_it_has_at_its_origin() -> None:
    job = Job(MANY)
    job.trigger()
    for region in "abc":
        job.ack(region, operator="old" if region == "c" else "stats")
    job.end()
    first = one(NotifyManagers, job.batch(healthy="ab", failed="c")).fallbacks
    assert first == {Owner("p", "old", "c", "sums"): 2, state("c"): 2}
    second = one(NotifyManagers, job.batch(healthy="ab", failed="c")).fallbacks
    assert second == {**first, in_flight("c", 3): 3}
    # Other states since: the new names count.
    job.batch(healthy="abc")
    third = one(NotifyManagers, job.batch(healthy="ab", failed="c")).fallbacks
    assert third == {state("c"): 5}


def test_in_flight_data_of_a_healthy_region_has_its_own_origin() -> None:  # R52
    job = Job(MANY)
    job.trigger()
    overtaken = RegionEntry("a", origin=2, in_flight=[rows(2)])
    job.handle(Acked(attempt=2, region="a", entry=overtaken))
    job.ack("b")
    assert one(NotifyManagers, job.end()).message == "completed"
    job.trigger()
    kept = RegionEntry("a", origin=3, in_flight=[*overtaken.in_flight, rows(3)])
    job.handle(Acked(attempt=3, region="a", entry=kept))
    assert one(NotifyManagers, job.end()).fallbacks == {in_flight("a", 2): 2, state("b"): 2}


@pytest.mark.parametrize("num_retained", [1, 2, 4])
def test_the_newest_checkpoints_stay(num_retained: int) -> None:  # R70
    job = Job(CoordinatorOptions(num_retained=num_retained))
    dropped: list[int] = []
    for _ in range(6):
        actions = job.batch(healthy="ab")
        dropped += [id for drop in of(DropMetadata, actions) for id in drop.ids]
        # Before the view without them goes out.
        kinds = [type(action) for action in actions]
        if DropMetadata in kinds:
            assert kinds.index(DropMetadata) < kinds.index(NotifyManagers)
    newest = list(range(1, 8))[-num_retained:]
    assert sorted(job.disk) == newest
    assert [metadata.id for metadata in job.coordinator.retained] == newest
    assert dropped == list(range(1, 8))[:-num_retained]


def test_older_checkpoints_stay_whole_until_several_go_at_once() -> None:  # R70
    job = Job(CoordinatorOptions(num_retained=2, dropped_together=3))
    there = []
    for _ in range(8):
        actions = job.batch(healthy="ab")
        there.append(sorted(job.disk))
        # What managers keep is what a restart finds.
        assert sorted(one(NotifyManagers, actions).retained) == there[-1]
    assert [len(ids) for ids in there] == [2, 3, 4, 2, 3, 4, 2, 3]
    assert all(ids[-1] - ids[0] == len(ids) - 1 for ids in there)


def test_a_checkpoint_that_cannot_be_deleted_stays_retained_until_it_can() -> None:  # R76
    job = Job(CoordinatorOptions(num_retained=1))
    job.batch(healthy="ab")
    job.undeletable = {2}
    for dropped in ((2,), (2, 3), (2, 4)):
        actions = job.batch(healthy="ab")
        assert one(DropMetadata, actions) == DropMetadata(ids=dropped, required=False)
        newest = job.latest.id
        assert set(one(NotifyManagers, actions).retained) == {2, newest}
        assert [metadata.id for metadata in job.coordinator.retained] == [2, newest]
    job.batch(healthy="a", failed="b")
    assert sorted(job.disk) == [2, 6]
    # A restart finds it, and tries again.
    actions = job.restart()
    assert set(one(NotifyManagers, actions).retained) == {2, 6}
    job.undeletable = set()
    assert set(one(NotifyManagers, job.batch(healthy="ab")).retained) == {7}
    assert sorted(job.disk) == [7]


def test_nothing_begins_while_metadata_is_dropped() -> None:  # R76
    job = Job(CoordinatorOptions(num_retained=1), started=False)
    publication = job.handle(Start(now_ms=1))
    job.settle(publication)
    job.trigger()
    job.ack("a")
    (publish,) = job.handle(TasksEnded(attempt=2, now_ms=2))
    assert isinstance(publish, Publish)
    actions = job.handle(Published(attempt=2, now_ms=3))
    assert [type(action) for action in actions] == [CommitSinks, DropMetadata]
    with pytest.raises(RuntimeError, match="expected MetadataDropped"):
        job.handle(Trigger(batch_id=1, kind="checkpoint", now_ms=4))
    rest = job.handle(MetadataDropped(ids=(1,)))
    assert [type(action) for action in rest] == [NotifyManagers, Ended]
    assert job.handle(MetadataDropped(ids=(2,))) == []
    assert job.coordinator.latest is not None


def test_an_old_origin_keeps_segments_and_no_checkpoint() -> None:  # R70
    job = Job(dataclasses.replace(MANY, num_retained=1))
    job.batch(healthy="abc")
    for _ in range(3):
        message = one(NotifyManagers, job.batch(healthy="ab", failed="c"))
    assert list(job.disk) == [5]
    assert origins(message) == {2, 3, 4, 5}
    assert origins(one(NotifyManagers, job.batch(healthy="abc"))) == {6}


def test_savepoints_are_never_subsumed() -> None:  # R70
    job = Job(CoordinatorOptions(num_retained=1))
    job.batch(healthy="ab", kind="savepoint")
    for _ in range(3):
        message = one(NotifyManagers, job.batch(healthy="ab"))
    assert sorted(job.disk) == [2, 5]
    assert set(message.retained) == {2, 5}
    job.restart()
    assert sorted(job.disk) == [2, 5]


def test_what_is_newer_than_the_restored_checkpoint_is_dropped() -> None:  # R75
    job = Job(CoordinatorOptions(num_retained=3))
    for _ in range(3):
        job.batch(healthy="ab")
    job.coordinator = CheckpointCoordinator(
        job.options, TOPOLOGY, restored=job.disk[3], retained=list(job.disk.values())
    )
    actions = job.settle(job.handle(Start(now_ms=1)))
    assert one(DropMetadata, actions).ids == (4,)
    assert set(one(NotifyManagers, actions).retained) == {2, 3}
    run = one(RunAttempt, job.trigger(batch_id=2))
    assert run.attempt == 5


# --- finished regions, final checkpoints ----------------------------------------------------------


def test_a_final_checkpoint_asks_every_region_that_has_not_finished() -> None:  # R25, R61
    job = Job(MANY)
    job.batch(healthy="ab")
    run = one(RunAttempt, job.trigger("final"))
    assert (run.kind, run.global_required, set(run.owed)) == ("final", True, {"a", "b"})
    job.ack("a", finished=True)
    actions = job.end()
    assert one(Ended, actions).outcome == "aborted"
    assert [failed.region for failed in job.coordinator.history[-1].failed] == ["b"]


def test_data_ends_in_a_final_attempt_only_and_not_where_the_pipeline_just_stops() -> None:  # R61
    job = Job(MANY)
    job.batch(healthy="a", finished="b")
    job.handle(NoticeDelivered(checkpoint=job.latest.id, region="b"))
    run = one(RunAttempt, job.trigger())
    assert (run.end_of_data, run.finished) == (False, {"b": 2})
    job.ack("a")
    job.end()
    event = Trigger(batch_id=job.batch_id, kind="final", now_ms=0, end_of_data=False)
    run = one(RunAttempt, job.handle(event))
    assert (run.end_of_data, set(run.owed)) == (False, set())
    job.end()
    run = one(RunAttempt, job.handle(dataclasses.replace(event, end_of_data=True)))
    # Where a region finished is known for good: it takes part in nothing after that.
    assert (run.end_of_data, set(run.owed), run.finished) == (True, {"a"}, {"b": 2})


def test_a_final_checkpoint_with_a_failed_region_is_tried_again() -> None:  # R25
    job = Job(CoordinatorOptions())
    job.batch(healthy="abc")
    for again in (False, True):
        actions = job.batch(finished="ab", failed="c", kind="final", again=again)
        assert one(Ended, actions).outcome == "aborted"
    actions = job.batch(finished="abc", kind="final", again=True)
    assert one(Ended, actions).outcome == "global"
    assert (job.latest.kind, job.latest.finished_operators) == ("final", ("stats",))


@pytest.mark.parametrize("kind", ["final", "savepoint"])
def test_nothing_may_be_left_in_flight_at_the_end(kind: str) -> None:  # R25
    job = Job(CoordinatorOptions())
    job.batch(healthy="ab")
    for again in (False, True):
        job.trigger(kind, job.batch_id if again else None)
        left = RegionEntry("a", origin=job.last_id, in_flight=[rows(job.last_id)])
        job.handle(Acked(attempt=job.last_id, region="a", entry=left))
        job.ack("b")
        assert one(Ended, job.end()).cause == "regions still have in-flight data: 'a'"
    assert one(Ended, job.batch(healthy="ab", kind=kind, again=True)).outcome == "global"


def test_a_region_that_never_drains_ends_the_query() -> None:  # R25
    job = Job(CoordinatorOptions(global_timeout_ms=1_000))
    job.batch(healthy="ab")
    for again in (False, True):
        job.trigger("final", job.batch_id if again else None)
        left = RegionEntry("a", origin=job.last_id, in_flight=[rows(job.last_id)])
        job.handle(Acked(attempt=job.last_id, region="a", entry=left))
        job.ack("b")
        job.now_ms += one(Retry, job.end()).pause_ms
    job.now_ms += 1_000
    job.trigger("final", job.batch_id)
    left = RegionEntry("a", origin=job.last_id, in_flight=[rows(job.last_id)])
    job.handle(Acked(attempt=job.last_id, region="a", entry=left))
    job.ack("b")
    assert "regions still have in-flight data" in one(FailQuery, job.end()).error


def test_a_finished_region_must_answer_until_its_notice_is_delivered() -> None:  # R62
    job = Job(MANY)
    job.batch(healthy="bc", finished="a")
    assert job.latest.regions["a"].finished
    assert set(one(RunAttempt, job.trigger()).owed) == {"a"}
    job.ack("b")
    job.ack("c")
    job.decline("a", in_flight=[], had_rows=False)
    assert one(Ended, job.end()).cause == (
        "a finished region failed before its last commit was delivered: 'a': boom"
    )
    # Others may fall back meanwhile.
    actions = job.batch(healthy="b", failed="c", finished="a", again=True)
    assert one(Ended, actions).outcome == "regional"
    job.handle(NoticeDelivered(checkpoint=2, region="a"))  # Of an older checkpoint.
    assert set(one(RunAttempt, job.batch(healthy="bc", finished="a")).owed) == {"a", "c"}
    job.handle(NoticeDelivered(checkpoint=job.latest.id, region="a"))
    assert set(one(RunAttempt, job.batch(healthy="bc")).owed) == set()
    assert job.latest.regions["a"].finished
    # A restarted driver does not know of it.
    job.restart()
    assert set(one(RunAttempt, job.trigger()).owed) == {"a"}


def test_a_region_that_falls_back_behind_its_finish_has_not_finished() -> None:  # R60
    job = Job(MANY)
    job.batch(healthy="abc")
    job.trigger()
    job.decline("a")
    job.ack("a", finished=True)  # Of a second run of its task.
    job.ack("b")
    job.ack("c")
    job.end()
    assert job.latest.failed == {"a": 2}
    assert not job.latest.regions["a"].finished
    assert set(one(RunAttempt, job.trigger()).owed) == {"a"}


def test_union_state_finishes_in_all_regions_or_in_none() -> None:  # R63
    job = Job(MANY)
    job.state_kind = "union"
    job.batch(healthy="ab")
    actions = job.batch(healthy="b", finished="a")
    assert one(Ended, actions).cause == (
        "only some regions of an operator with union state have finished: stats; running: 'b'"
    )
    assert one(Ended, job.batch(finished="ab", again=True)).outcome == "global"


def test_history_remembers_the_newest_attempts() -> None:
    job = Job(dataclasses.replace(MANY, history_length=2))
    job.batch(healthy="abc")
    job.now_ms = 2_000
    job.batch(healthy="ab", failed={"c": "disk full"})
    job.batch(failed="abc")
    regional, aborted = job.coordinator.history
    (failed,) = regional.failed
    assert (failed.region, failed.origin, failed.cause) == ("c", 2, "disk full")
    assert (regional.id, regional.batch_id, regional.outcome) == (3, 1, "regional")
    assert (regional.in_flight_rows, regional.ended_ms, regional.cause) == (10, 2_000, "")
    assert [failed.origin for failed in aborted.failed] == [None] * 3
    assert (aborted.in_flight_rows, aborted.outcome) == (0, "aborted")
