"""Evaluation, composition and publication (B of the semantics), one rule at a time."""

from __future__ import annotations

import dataclasses

import pytest

from holdfast._core import RegionEntry
from holdfast.regions.coordinator import (
    Acked,
    Action,
    AskFallback,
    CoordinatorOptions,
    DropMetadata,
    Ended,
    Publish,
    PublishFailed,
    Retry,
    RunAttempt,
    TasksEnded,
    Topology,
    Trigger,
)
from support.regional.coordinator_job import TOPOLOGY, WITH_SOURCE, Job, of, one, regions

MANY = CoordinatorOptions(max_consecutive_failures=9, tolerable_failed_checkpoints=9)


def outcome(job: Job) -> tuple[str, str]:
    record = job.coordinator.history[-1]
    return record.outcome, record.cause


def test_a_job_of_one_region_has_no_regional_checkpoint() -> None:  # R11
    job = Job()
    job.batch(failed={"a": "disk full"})
    assert outcome(job) == ("aborted", "the only region failed: 'a'; 'a': disk full")


@pytest.mark.parametrize(
    ("ratio", "count", "failing", "expected"),
    [
        (0.3, 2, 1, "regional"),  # one always may
        (0.3, 2, 2, "aborted"),
        (0.3, 10, 3, "regional"),
        (0.3, 10, 4, "aborted"),
        (0.3, 11, 3, "regional"),
        (0.29, 100, 29, "regional"),  # 0.29 * 100 is below 29 in floats
        (0.29, 100, 30, "aborted"),
        (1.0, 5, 4, "regional"),
        (1.0, 5, 5, "aborted"),  # all never may
        (0.001, 3, 1, "regional"),
    ],
)
def test_only_a_share_of_the_regions_may_fail(
    ratio: float, count: int, failing: int, expected: str
) -> None:  # R12
    job = Job(CoordinatorOptions(max_failure_ratio=ratio, tolerable_failed_checkpoints=1))
    names = regions(count)
    job.batch(healthy=names[failing:], failed=names[:failing])
    assert outcome(job)[0] == expected
    assert len(job.coordinator.history[-1].failed) == failing


def test_regions_without_rows_do_not_count() -> None:  # R12
    job = Job()
    names = regions(100)
    job.batch(healthy=names)
    job.batch(failed=names[:8])
    assert outcome(job) == (
        "aborted",
        "too many regions failed: 8 of 8, 2 are allowed: 'r0', 'r1', 'r2' and 5 more; 'r0': boom",
    )
    job.batch(healthy=names[6:8], failed=names[:6], again=True)
    assert outcome(job)[0] == "aborted"
    job.batch(healthy=names[2:8], failed=names[:2], again=True)
    assert outcome(job)[0] == "regional"


def test_what_owes_rows_counts_without_new_ones() -> None:  # R12
    job = Job(MANY)
    names = regions(100)
    job.batch(healthy=names)
    job.batch(healthy=names[1:8], failed=names[:1])
    # One region with new rows, one that owes: none is left that did not fail.
    job.batch(failed=[names[0], names[50]])
    assert outcome(job)[1].startswith("too many regions failed: 2 of 2, 1 are allowed")


def test_the_only_region_with_rows_may_fail_beside_idle_ones() -> None:  # R11, R12
    job = Job()
    job.batch(healthy=regions(3))
    job.batch(failed=regions(1))
    assert outcome(job)[0] == "regional"


def test_regions_that_are_lost_with_one_task_are_one_failure() -> None:  # R12
    job = Job()
    names = regions(6)

    def losing(task_of: dict[str, str]) -> None:
        job.trigger(batch_id=max(job.batch_id, job.latest.batch_id + 1))
        for region in names:
            if region in task_of:
                job.decline(region, "the worker was killed", task=task_of[region])
            else:
                job.ack(region)
        job.end()

    losing(dict.fromkeys(names[:3], "partition 0"))
    assert outcome(job)[0] == "regional"
    assert set(job.latest.failed) == set(names[:3])
    losing({**dict.fromkeys(names[:3], "partition 0"), names[3]: "partition 1"})
    assert outcome(job)[1].startswith(
        "too many regions failed: 4 of 6 by 2 failures, 1 are allowed"
    )
    losing(dict.fromkeys(names, "partition 0"))
    assert outcome(job)[1].startswith("too many regions failed: 6 of 6 by 1 failures")


def test_a_decline_that_comes_again_is_no_failure_of_its_own() -> None:  # R4, R12
    """The task that the first decline was lost with counts: a copy may come from later tasks."""
    job = Job()
    job.trigger()
    names = regions(6)
    for region in names[2:]:
        job.ack(region)
    for region in names[:2]:
        job.decline(region, "the worker was killed", task="partition 0")
    for task in (None, "owed", "partition 1"):
        job.decline(names[0], "the worker was killed", task=task)
    job.end()
    assert outcome(job)[0] == "regional"

    job.trigger(batch_id=job.latest.batch_id + 1)
    for region in names[2:]:
        job.ack(region)
    for region in names[:2]:
        job.decline(region)
        job.decline(region, "the worker was killed", task="partition 0")
    job.end()
    assert outcome(job)[1].startswith("too many regions failed: 2 of 6, 1 are allowed")


def test_without_any_checkpoint_no_region_may_fall_back() -> None:  # R13
    job = Job(started=False)
    job.trigger()
    job.ack("b")
    job.decline("a")
    job.end()
    assert outcome(job)[1].startswith("a region failed before any checkpoint was complete")


def test_a_new_layout_needs_a_global_checkpoint_first() -> None:  # R14
    job = Job()
    job.batch(healthy="abc")
    changed = dataclasses.replace(TOPOLOGY, fingerprint=b"layout 2")
    job.restart(changed)
    for _ in range(3):
        assert one(
            RunAttempt, job.batch(healthy="ab", failed="c", again=job.batch_id > 0)
        ).global_required
        assert outcome(job)[0] == "aborted"
    # A crash changes nothing: what is on disk has the old layout still.
    job.restart()
    actions = job.batch(healthy="ab", failed="c", again=True)
    assert one(Ended, actions).outcome == "aborted"
    job.batch(healthy="abc", again=True)
    job.batch(healthy="ab", failed="c")
    assert [record.outcome for record in job.coordinator.history] == [
        *("aborted", "global", "regional")
    ]
    job.restart()
    assert not one(RunAttempt, job.trigger()).global_required


def test_a_coordinator_without_fallback_needs_every_region() -> None:  # R15
    unable = Topology(
        pipeline="p", operators=("source",), coordinators={"source": False}, fingerprint=b""
    )
    job = Job(topology=unable)
    job.batch(healthy="ab", failed="c")
    assert outcome(job)[1].startswith(
        "the coordinator of an operator does not support fallback: source"
    )
    job.batch(healthy="abc", again=True)
    assert outcome(job)[0] == "global"


def test_a_checkpoint_has_the_new_state_of_healthy_regions_and_the_base_of_failed_ones() -> None:
    # R16, R30: a fallback of a fallback keeps the first origin.
    job = Job(CoordinatorOptions(max_consecutive_failures=9))
    job.batch(healthy="abc")
    base = job.latest.regions["c"]
    for fallbacks in (1, 2, 3):
        job.now_ms += 10
        job.batch(healthy="ab", failed={"c": "disk full"})
        latest = job.latest
        assert {name: latest.regions[name].origin for name in "ab"} == dict.fromkeys(
            "ab", latest.id
        )
        fallen = latest.regions["c"]
        assert (fallen.origin, fallen.operators) == (base.origin, base.operators)
        assert (fallen.fallbacks, fallen.stale_since_ms, fallen.cause) == (
            fallbacks,
            1010,
            "disk full",
        )
        assert [stored.created for stored in fallen.in_flight] == list(range(3, latest.id + 1))
        assert latest.failed == {"c": base.origin}


def test_the_order_of_evaluation_is_that_of_the_rules() -> None:
    # Everything is wrong at once; each time the first thing is put right, the next one shows.
    unable = Topology(
        pipeline="p", operators=("source",), coordinators={"source": False}, fingerprint=b"1"
    )
    options = CoordinatorOptions(tolerable_failed_checkpoints=9, max_consecutive_failures=1)
    job = Job(options, unable)
    job.batch(healthy=["a"])

    job.restart(dataclasses.replace(unable, fingerprint=b"2"))
    job.batch(failed=["a"])
    assert outcome(job)[1].startswith("a region declined, and the attempt had to be global")  # R10
    job.batch(healthy=["a"], again=True)
    job.batch(failed=["a"])
    assert outcome(job)[1].startswith("the only region failed")  # R11

    def fail_without_rows(*healthy: str, others: tuple[str, ...]) -> str:
        job.trigger(batch_id=job.batch_id)
        for region in healthy:
            job.ack(region)
        for region in others:
            job.decline(region, in_flight=[])
        job.end()
        return outcome(job)[1]

    assert fail_without_rows(others=("a", "b")).startswith("too many regions failed")  # R12
    lost = fail_without_rows("b", others=("a",))
    assert lost == "the rows of a failed region could not be stored: 'a'; 'a': boom"
    job.batch(healthy="b", failed="a", again=True)
    assert outcome(job)[1].startswith("the coordinator of an operator does not")  # R15


def test_a_failed_region_without_stored_rows_aborts_unless_it_had_none() -> None:
    job = Job(MANY)
    job.batch(healthy="ab")
    job.trigger()
    job.ack("b")
    job.decline("a", in_flight=[], had_rows=False)
    job.end()
    assert outcome(job)[0] == "regional"
    assert job.latest.regions["a"].in_flight == ()
    assert set(one(RunAttempt, job.batch(healthy="b", failed="a")).owed) == {"a"}


def test_what_is_owed_must_be_answered_for() -> None:
    job = Job(MANY)
    job.batch(healthy="abc")
    job.batch(healthy="ab", failed="c")
    run = one(RunAttempt, job.trigger())
    assert dict(run.owed) == {"c": job.latest.regions["c"]}
    # No task of it ever reported, so it is not known whether it had rows.
    job.end()
    assert outcome(job)[1].startswith("the rows of a failed region could not be stored: 'c'")
    job.trigger(batch_id=job.batch_id)
    job.decline("c", "rescued", in_flight=[], had_rows=False)
    job.end()
    assert outcome(job)[0] == "regional"


def test_corrected_snapshots_replace_those_of_the_trigger() -> None:  # R17, R32
    job = Job(topology=WITH_SOURCE)
    job.batch(healthy="abc")
    assert job.latest.coordinators == {"source": b"at the trigger"}
    actions = job.batch(healthy="ab", failed="c")
    assert of(AskFallback, actions) == [AskFallback(attempt=3, operator="source", origins={"c": 2})]
    assert job.latest.coordinators == {"source": b"corrected"}


def test_a_publication_that_fails_aborts_and_leaves_no_metadata() -> None:  # R18
    job = Job()
    job.batch(healthy="ab")
    job.trigger()
    job.ack("a")
    job.ack("b")
    publish = one(Publish, job.handle(TasksEnded(attempt=3, now_ms=9)))
    job.disk[3] = publish.metadata  # The driver cannot know whether it was written; it was.
    failed = PublishFailed(attempt=3, cause="no space left", now_ms=10)
    actions = job.settle(job.handle(failed))
    # Before anybody hears of the abort: a restart must not find the checkpoint.
    assert actions[0] == DropMetadata(ids=(3,))
    assert list(job.disk) == [1, 2]
    assert one(Ended, actions).cause == "the checkpoint could not be published: no space left"
    assert one(Retry, actions).batch_id == 1
    assert job.latest.id == 2


def test_an_aborted_attempt_is_tried_again_for_the_same_batch() -> None:
    job = Job()
    actions = job.batch(failed="ab")
    retry = one(Retry, actions)
    assert (retry.batch_id, retry.kind) == (0, "checkpoint")
    assert actions[-1] == retry
    run = one(RunAttempt, job.trigger(batch_id=retry.batch_id))
    assert (run.attempt, run.batch_id, run.new_rows) == (3, 0, True)


def test_metadata_holds_what_the_trigger_gave_it() -> None:
    job = Job()
    event = Trigger(batch_id=0, kind="checkpoint", now_ms=5, properties={"offsets": "12"})
    job.settle(job.handle(event))
    job.settle(job.handle(TasksEnded(attempt=2, now_ms=8)))
    latest = job.latest
    assert latest.properties == {"offsets": "12"}
    assert (latest.created_ms, latest.topology, latest.kind) == (8, b"layout 1", "checkpoint")


def test_the_same_events_give_the_same_actions() -> None:
    def history() -> list[Action]:
        job = Job(MANY, WITH_SOURCE)
        done = []
        for failing in ("ab", "b", "", "c"):
            done += job.trigger()
            for region in "abcd":
                if region in failing:
                    done += job.decline(region, in_flight=[], had_rows=False)
                else:
                    acked = RegionEntry(region, origin=job.last_id)
                    event = Acked(attempt=job.last_id, region=region, entry=acked)
                    done += job.handle(event)
            done += job.end()
        return done

    actions = history()
    assert {type(action) for action in actions} > {AskFallback, Publish, Retry}
    assert actions == history()


def test_causes_and_names_in_messages_are_few() -> None:
    job = Job()
    job.batch(failed=regions(50))
    record = job.coordinator.history[-1]
    assert record.cause == (
        "too many regions failed: 50 of 50, 15 are allowed: 'r0', 'r1', 'r10' and 47 more; "
        "'r0': boom"
    )
