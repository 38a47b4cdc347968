"""The histories find faults: each of these breaks one decision, and some history must see it."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from holdfast import SnapshotManager
from holdfast._core import RegionEntry
from holdfast.regions.base.quarantine import quarantined
from holdfast.regions.coordinator import (
    Acked,
    AckedTogether,
    Action,
    CheckpointCoordinator,
    CommitSinks,
    CoordinatorOptions,
    Declined,
    Event,
    Published,
    RunAttempt,
    Staleness,
    Start,
    Trigger,
    evaluation,
    idle,
    planning,
)
from holdfast.regions.coordinator.attempt import PendingAttempt
from holdfast.regions.coordinator.regions import Regions
from holdfast.regions.coordinator.retention import Retention
from holdfast.regions.driver import attempts
from holdfast.regions.driver.attempt_watch import AttemptWatch
from holdfast.regions.driver.attempts import Attempts
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.protocol.orders import EndedAttempt
from support.regional.coordinator_world import Rates, World, memory_folder, names

SEEDS = 20

Patch = Callable[[Any, str, Any], None]


@pytest.fixture(autouse=True)
def few_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let regions retire in short histories."""
    monkeypatch.setattr(idle, "LEAST_CHECKPOINTS", 2)


def wrong_origin(patch: Patch) -> None:
    """A region that falls back again is stamped with the latest checkpoint."""
    compose = evaluation.compose

    def composed(attempt: PendingAttempt, **more: Any) -> Regions:
        entries = compose(attempt, **more)
        for region in attempt.failed():
            entries[region] = changed(entries[region], origin=more["base_id"])
        return entries

    patch(evaluation, "compose", composed)


def file_in_part(patch: Patch) -> None:
    """A message with regions that answered before counts for the others."""

    def one_by_one(self: PendingAttempt, event: AckedTogether) -> None:
        for ack in event.acks:
            self.acked(ack)

    patch(PendingAttempt, "acked_together", one_by_one)


def rows_left_out(patch: Patch) -> None:
    """What a failed region stored of its rows is not in the checkpoint."""
    compose = evaluation.compose

    def composed(attempt: PendingAttempt, **more: Any) -> Regions:
        entries = compose(attempt, **more)
        for region in attempt.failed():
            entries[region] = changed(entries[region], in_flight=())
        return entries

    patch(evaluation, "compose", composed)


def decline_dropped(patch: Patch) -> None:
    """The driver loses every decline."""
    events = AttemptWatch.events

    def without(*arguments: Any, **more: Any) -> Generator[Event, None, None]:
        for event in events(*arguments, **more):
            if not isinstance(event, Declined):
                yield event

    patch(AttemptWatch, "events", without)


def completed_for_all(patch: Patch) -> None:
    """Regions that fell back hear that the checkpoint completed."""

    patch(attempts, "EndedAttempt", lambda attempt, outcome, _: EndedAttempt(attempt, outcome))


def nothing_released(patch: Patch) -> None:
    """What refused answers wrote stays."""
    patch(PendingAttempt, "released", lambda self: {})


def one_too_few_retained(patch: Patch) -> None:
    """A checkpoint is let go of although it is one of the newest `num_retained`."""
    subsumed = Retention.subsumed

    def early(self: Retention) -> tuple[int, ...]:
        gone = subsumed(self)
        rest = sorted(self._kept.keys() - set(gone))
        return (*gone, rest[0]) if len(rest) == self.options.num_retained > 1 else gone

    patch(Retention, "subsumed", early)


def undeleted_forgotten(patch: Patch) -> None:
    """A checkpoint whose metadata cannot be deleted is let go of all the same (R76)."""
    let_go = Retention.let_go
    patch(Retention, "let_go", lambda self, ids: let_go(self, self.subsumed()))


def forced_global_accepted(patch: Patch) -> None:
    """An attempt that must be global completes with a decline."""
    reject = evaluation.reject

    def lenient(attempt: PendingAttempt, **more: Any) -> evaluation.Rejection | None:
        mandatory, attempt.mandatory = attempt.mandatory, False
        try:
            return reject(attempt, **more)
        finally:
            attempt.mandatory = mandatory

    patch(evaluation, "reject", lenient)


def tasks_go_on(patch: Patch) -> None:
    """Tasks of an attempt that is over still run."""

    def run_attempt(self: Attempts, action: RunAttempt, source: object, at_ms: int) -> list[Action]:
        found: list[Action] = []
        for event in self._run_tasks(action, source, at_ms):
            found += self.machine.handle(event)
        return found

    patch(Attempts, "_run_attempt", run_attempt)


def reset_with_the_newest_id(patch: Patch) -> None:
    """The coordinator of an operator hears of the latest checkpoint, not of the origin."""

    def origin(self: CheckpointCoordinator, region: str) -> int:
        return 0 if self.latest is None else self.latest.id

    patch(CheckpointCoordinator, "_origin", origin)


def number_not_noted(patch: Patch) -> None:
    """An attempt leaves no number behind, so that a restart gives it to another one."""
    patch(CheckpointFolders, "note_attempt", lambda self, attempt: None)


def last_rows_forgotten(patch: Patch) -> None:
    """A region that is retired is not in the checkpoint, although it put out rows."""
    compose = evaluation.compose

    def composed(attempt: PendingAttempt, **more: Any) -> Regions:
        entries = compose(attempt, **more)
        for region in [region for region in entries if idle.is_retired(entries[region])]:
            del entries[region]
        return entries

    patch(evaluation, "compose", composed)


def quarantine_judged(patch: Patch) -> None:
    """A region in quarantine aborts the attempts in which it fails (R27)."""
    patch(PendingAttempt, "counted", lambda self: dict(self.failed()))


def quarantine_overwritten(patch: Patch) -> None:
    """The rows of a batch take the place of those that a region in quarantine owes."""
    compose = evaluation.compose

    def composed(attempt: PendingAttempt, **more: Any) -> Regions:
        entries = compose(attempt, **more)
        for region in attempt.quarantined & attempt.regions.keys():
            entries[region] = quarantined(entries[region], entries[region].in_flight[-1:])
        return entries

    patch(evaluation, "compose", composed)


def last_rows_not_recovered(patch: Patch) -> None:
    """A start does not publish the last rows of a region again."""
    handle = CheckpointCoordinator.handle

    def without(self: CheckpointCoordinator, event: Event) -> Iterator[Action]:
        for action in handle(self, event):
            if isinstance(event, Start) and isinstance(action, CommitSinks):
                entries = self.entries
                kept = {r for r in action.regions if r in entries and entries[r].operators}
                action = replace(action, regions=frozenset(kept))
            yield action

    patch(CheckpointCoordinator, "handle", lambda *given: [*without(*given)])


def retired_beside_failed_regions(patch: Patch) -> None:
    """Regions are retired with a regional checkpoint."""
    patch(PendingAttempt, "retire_none", lambda self: None)


def retired_too_early(patch: Patch) -> None:
    """Regions are retired that have been idle for any time."""
    newest = property(lambda self: max((id for id, _ in self.marks), default=0))
    patch(idle.IdleTime, "idle_since", newest)


def retired_although_they_owe(patch: Patch) -> None:
    """Rows that are in flight keep no region."""
    opened = planning.open_attempt

    def with_all(id: int, event: Trigger, **more: Any) -> PendingAttempt:
        attempt = opened(id, event, **more)
        if attempt.retiring:
            attempt.retiring |= attempt.owed
        return attempt

    patch(planning, "open_attempt", with_all)


def retired_although_they_have_rows(patch: Patch) -> None:
    """A region is retired whose rows of the batch are acknowledged."""
    acked = PendingAttempt.acked

    def over(self: PendingAttempt, event: Acked) -> None:
        acked(self, event)
        if event.region in self.retiring:
            entry = RegionEntry(event.region, origin=self.id)
            self.regions[event.region].acked = entry

    patch(PendingAttempt, "acked", over)


def quarantine_let_go(patch: Patch) -> None:
    """A region in quarantine is lost where it has no rows in a batch."""

    def let_go(attempt: PendingAttempt, options: CoordinatorOptions) -> None:
        for region in attempt.quarantined - attempt.regions.keys():
            del attempt.composed[region]

    patch(evaluation, "overfull", let_go)


def quarantine_unbounded(patch: Patch) -> None:
    """The rows in quarantine have no bound (R28)."""
    patch(evaluation, "overfull", lambda attempt, options: None)


def quarantine_for_ever(patch: Patch) -> None:
    """A start leaves the regions in quarantine where they are (R29)."""
    init = CheckpointCoordinator.__init__

    def without_replay(self: CheckpointCoordinator, *given: Any, **more: Any) -> None:
        init(self, *given, **more)
        self._quarantine = replace(self._quarantine, replay=frozenset())

    patch(CheckpointCoordinator, "__init__", without_replay)


def quarantine_attempted_for_ever(patch: Patch) -> None:
    """A region that failed in its replay is attempted again (R29)."""
    handle = CheckpointCoordinator.handle

    def again(self: CheckpointCoordinator, event: Event) -> Sequence[Action]:
        actions = handle(self, event)
        for region in self.quarantined if isinstance(event, Published) else ():
            self.replay(region)
        return actions

    patch(CheckpointCoordinator, "handle", again)


FAULTS = [
    wrong_origin,
    rows_left_out,
    decline_dropped,
    completed_for_all,
    nothing_released,
    one_too_few_retained,
    undeleted_forgotten,
    forced_global_accepted,
    tasks_go_on,
    reset_with_the_newest_id,
    number_not_noted,
    last_rows_forgotten,
    last_rows_not_recovered,
    retired_beside_failed_regions,
    retired_too_early,
    retired_although_they_owe,
    retired_although_they_have_rows,
    file_in_part,
    quarantine_judged,
    quarantine_overwritten,
    quarantine_let_go,
    quarantine_unbounded,
    quarantine_for_ever,
    quarantine_attempted_for_ever,
]


@pytest.mark.parametrize("fault", FAULTS, ids=lambda fault: fault.__name__)
def test_some_history_finds_a_planted_fault(
    fault: Callable[[Patch], None], monkeypatch: pytest.MonkeyPatch
) -> None:
    fault(monkeypatch.setattr)
    with pytest.raises(AssertionError):
        histories()


def test_none_of_these_histories_fails_without_a_fault() -> None:
    histories()


def test_segments_that_are_not_released_live_as_long_as_their_checkpoint(
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # R3
    def leaked(seed: int) -> int:
        with memory_folder() as folder, SnapshotManager(CheckpointFolders(folder).segments) as own:
            world = World(
                regions=list(names(4)),
                batches=3,
                options=CoordinatorOptions(),
                rates=Rates(repeat=0.3),
                seed=seed,
                folder=folder,
                manager=own,
            )
            world.run()
            needed = {ref for m in world.disk.values() for _, _, ref in m.segments("p")}
            return own.stats().live_segments - len(needed)

    assert [leaked(seed) for seed in range(5)] == [0] * 5
    released = PendingAttempt.released
    told: list[Mapping[Any, Any]] = []

    def kept(self: PendingAttempt) -> Mapping[Any, Any]:
        told.append(released(self))
        return told[-1]

    monkeypatch.setattr(PendingAttempt, "released", kept)
    monkeypatch.setattr("support.regional.coordinator_runner.tell_manager", without_release)
    assert sum(leaked(seed) for seed in range(5)) > 0
    assert any(told)


def without_release(manager: SnapshotManager, message: Any) -> None:
    manager.partially_completed(
        message.checkpoint, message.fallbacks, message.retained, decided=message.decided
    )


def histories() -> None:
    for seed in range(SEEDS):
        history(seed)
        history(seed, quarantine=True)


def history(seed: int, *, quarantine: bool = False) -> None:
    """Run a history in which much goes wrong, and which goes on for long all the same."""
    with (
        memory_folder() as folder,
        SnapshotManager(CheckpointFolders(folder).segments, max_file_bytes=2_000) as manager,
    ):
        World(
            regions=list(names(6)),
            batches=6,
            options=CoordinatorOptions(
                max_consecutive_failures=2 if seed % 5 else 0,
                max_failure_ratio=0.9,
                max_region_staleness=Staleness(checkpoints=5),
                num_retained=2,
                tolerable_failed_checkpoints=50,
                retire_idle_ms=60,
                quarantine_after=1 + seed % 2 if quarantine else None,
                max_quarantined_bytes=1 << 30 if seed % 3 else 12,
            ),
            on_retire=seed % 4 > 0,
            rates=Rates(
                crash=0.03,
                decline=0.1 if quarantine else 0.05,
                silence=0.05,
                repeat=0.1,
                coordinator=0.03,
                publish=0.02,
                undeleted=0.1,
                drain=0.3 if quarantine else 0.1,
                lost_task=0.03,
                together=0.3,
            ),
            seed=seed,
            folder=folder,
            manager=manager,
        ).run()


def changed(entry: RegionEntry, **fields: Any) -> RegionEntry:
    """Return a failed region's entry with other values."""
    known = {
        "origin": entry.origin,
        "operators": entry.operators,
        "in_flight": entry.in_flight,
        "failed": True,
        "fallbacks": entry.fallbacks,
        "stale_since_ms": entry.stale_since_ms,
        "cause": entry.cause,
    }
    return RegionEntry(entry.region, **{**known, **fields})
