"""Everything around a coordinator, with all that can go wrong, from one seed."""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from coordinator_oracle import Content, Oracle, Told
from holdfast import Owner, SegmentRef, SnapshotManager
from holdfast._core import (
    CheckpointMetadata,
    InFlight,
    OperatorEntry,
    Piece,
    RegionEntry,
    StateEntry,
)
from holdfast.regions.coordinator import (
    INITIAL_BATCH,
    Acked,
    Action,
    AskFallback,
    BatchDone,
    CheckpointCoordinator,
    CommitSinks,
    CoordinatorOptions,
    CoordinatorSnapshot,
    CoordinatorSnapshotFailed,
    Declined,
    DropMetadata,
    Ended,
    Event,
    FailQuery,
    FallbackSnapshot,
    FallbackSnapshotFailed,
    GiveUp,
    NotifyCoordinator,
    NotifyManagers,
    NotifyRegion,
    Publish,
    Published,
    PublishFailed,
    RegionStarted,
    ReleaseSegments,
    ResetCoordinator,
    ResetRegion,
    Retry,
    RunAttempt,
    SnapshotCoordinators,
    Start,
    TasksEnded,
    TimedOut,
    Topology,
    Trigger,
)

PIPELINE = "p"


class CrashError(Exception):
    """The driver died."""


class Store(Protocol):
    """Where bytes of regions go."""

    def put(self, owner: Owner, attempt: int, data: bytes) -> SegmentRef | bytes: ...

    def get(self, owner: Owner, stored: SegmentRef | bytes) -> bytes: ...


class InlineStore:
    """Bytes stay in the metadata."""

    def put(self, owner: Owner, attempt: int, data: bytes) -> SegmentRef | bytes:
        return data

    def get(self, owner: Owner, stored: SegmentRef | bytes) -> bytes:
        assert isinstance(stored, bytes)
        return stored


class ManagerStore:
    """Bytes go to a snapshot manager."""

    def __init__(self, manager: SnapshotManager) -> None:
        self.manager = manager

    def put(self, owner: Owner, attempt: int, data: bytes) -> SegmentRef | bytes:
        return self.manager.append(owner, attempt, data)

    def get(self, owner: Owner, stored: SegmentRef | bytes) -> bytes:
        assert isinstance(stored, SegmentRef)
        return self.manager.read(stored, owner)


@dataclass(frozen=True, kw_only=True)
class Rates:
    """How often things go wrong, each between 0 and 1."""

    crash: float = 0.0
    decline: float = 0.0
    silence: float = 0.0
    unsaved: float = 0.0
    repeat: float = 0.0
    coordinator: float = 0.0
    publish: float = 0.0
    lost_message: float = 0.0
    savepoint: float = 0.0
    unaligned: float = 0.0
    lost_task: float = 0.0


class Enumerator:
    """An operator's coordinator that gives splits to regions.

    `given` has the region and the attempt of every split, `inbox` what no task has received yet:
    a region that starts again without `region_reset` would never see a split again.
    """

    def __init__(self) -> None:
        self.pool: set[int] = set()
        self.given: dict[int, tuple[str, int]] = {}
        self.fresh: dict[int, str] = {}
        self.inbox: set[int] = set()

    def give(self, region: str, split: int) -> None:
        self.pool.discard(split)
        self.fresh[split] = region
        self.inbox.add(split)

    def checkpoint(self, attempt: int) -> bytes:
        self.given.update({split: (region, attempt) for split, region in self.fresh.items()})
        self.fresh = {}
        return json.dumps([sorted(self.pool), sorted(self.given.items())]).encode()

    def checkpoint_fallback(self, snapshot: bytes, origins: dict[str, int]) -> bytes:
        copy = Enumerator()
        copy.reset(snapshot)
        for region, origin in origins.items():
            copy.region_reset(region, origin)
        return copy.checkpoint(0)

    def reset(self, snapshot: bytes | None) -> None:
        self.pool, self.given, self.fresh = set(range(1000)), {}, {}
        self.inbox = set()
        if snapshot is not None:
            pool, given = json.loads(snapshot)
            self.pool = set(pool)
            self.given = {split: (region, attempt) for split, (region, attempt) in given}

    def region_reset(self, region: str, origin: int) -> None:
        back = {s for s, (to, attempt) in self.given.items() if to == region and attempt > origin}
        self.pool |= back
        self.inbox -= back
        for split in back:
            del self.given[split]

    def sent_to(self, region: str) -> set[int]:
        return {split for split in self.inbox if self.given[split][0] == region}

    def delivered(self, regions: Iterable[str]) -> None:
        for region in regions:
            self.inbox -= self.sent_to(region)


@dataclass
class World:
    """One history. `run` raises where a rule is broken."""

    regions: Sequence[str]
    batches: int
    options: CoordinatorOptions
    rates: Rates
    seed: int
    manager: SnapshotManager | None = None
    with_source: bool = True

    disk: dict[int, CheckpointMetadata] = field(default_factory=dict)
    now_ms: int = 1_000
    last_id: int = 0
    failed_query: str | None = None
    late: list[Event] = field(default_factory=list)
    told: Told | None = None
    expected: tuple[str, dict[str, Content], set[str]] | None = None
    restart_told: frozenset[str] = frozenset()
    committed: dict[int, frozenset[str]] = field(default_factory=dict)
    attempts: int = 0
    kind: str = "checkpoint"
    survived_lost_tasks: int = 0

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311
        self.oracle = Oracle(self.options)
        self.store: Store = InlineStore() if self.manager is None else ManagerStore(self.manager)
        self.topology = Topology(
            pipeline=PIPELINE,
            operators=("source", "stats"),
            coordinators={"source": True} if self.with_source else {},
            fingerprint=b"1",
        )
        self.enumerator = Enumerator()
        # The input is what it is, however often a batch is run.
        self.input = {
            batch: {r for r in self.regions if self.random.random() < 0.6}
            for batch in range(self.batches)
        }
        self.bad = {r for r in self.regions if self.random.random() < 0.2}

    def chance(self, rate: float) -> bool:
        return self.random.random() < rate

    # --- the driver -------------------------------------------------------------------------------

    def run(self) -> None:
        """Run all batches and the final one, with restarts, unless the query fails before."""
        self.boot()
        while self.failed_query is None and (job := self.next_job()) is not None:
            self.guarded(self.trigger(*job))
        if self.failed_query is None:
            self.check_end()

    def next_job(self) -> tuple[int, str] | None:
        newest = self.disk[max(self.disk)]
        if newest.kind == "final":
            return None
        if newest.batch_id + 1 >= self.batches:
            return self.batches - 1, "final"
        kind = "savepoint" if self.chance(self.rates.savepoint) else "checkpoint"
        return newest.batch_id + 1, kind

    def boot(self) -> None:
        """Start the driver, from nothing but what is on disk, until it survives its start."""
        while True:
            newest = max(self.disk, default=None)
            self.coordinator = CheckpointCoordinator(
                self.options,
                self.topology,
                restored=None if newest is None else self.disk[newest],
                retained=list(self.disk.values()),
                last_id=self.last_id,
            )
            self.told = self.expected = None
            try:
                self.execute(self.coordinator.handle(Start(now_ms=self.now_ms)))
            except CrashError:
                self.oracle.log.append(("crash",))
                continue
            if self.coordinator.latest is not None:
                return
            # The checkpoint of empty states was not published: start again, as after a crash.
            self.oracle.log.append(("crash",))

    def guarded(self, actions: list[Action]) -> None:
        try:
            self.execute(actions)
        except CrashError:
            self.oracle.log.append(("crash",))
            self.boot()

    def trigger(self, batch: int, kind: Any) -> list[Action]:
        self.now_ms += self.random.randint(1, 50)
        self.told = self.expected = None
        self.kind = kind
        self.attempts += 1
        if self.attempts > 6 * self.batches + 20:  # Everything is repaired at last.
            self.rates, self.bad = Rates(), set()
        if self.with_source:
            for region in sorted(self.input[batch]):
                if self.chance(0.3) and self.enumerator.pool:
                    self.enumerator.give(region, min(self.enumerator.pool))
        return self.coordinator.handle(Trigger(batch_id=batch, kind=kind, now_ms=self.now_ms))

    def execute(self, actions: list[Action]) -> None:
        queue = list(actions)
        while queue:
            if self.chance(self.rates.crash):
                raise CrashError
            action = queue.pop(0)
            queue += self.do(action)

    def do(self, action: Action) -> list[Action]:
        match action:
            case SnapshotCoordinators():
                return self.snapshot_coordinators(action)
            case RunAttempt():
                return self.run_attempt(action)
            case AskFallback():
                return self.ask_fallback(action)
            case Publish():
                return self.publish(action)
            case Ended():
                self.ended(action)
            case FailQuery():
                self.check_failure(action)
                self.failed_query = action.error
            case ResetCoordinator():
                self.enumerator.reset(action.snapshot)
            case ResetRegion():
                self.check_reset(action)
                self.enumerator.region_reset(action.region, action.origin)
            case DropMetadata():
                for id in action.ids:
                    self.disk.pop(id, None)
            case NotifyManagers():
                self.tell_manager(action)
            case ReleaseSegments():
                self.release(action)
            case NotifyCoordinator():
                self.check_effective(action)
            case CommitSinks():
                self.committed[action.attempt] = action.regions
            case Retry():
                self.check_retry(action)
            case BatchDone() | NotifyRegion():
                pass
            case GiveUp():
                raise AssertionError("nothing here is optional")
        return []

    def feed(self, event: Event) -> list[Action]:
        return self.coordinator.handle(event)

    # --- operator coordinators --------------------------------------------------------------------

    def snapshot_coordinators(self, action: SnapshotCoordinators) -> list[Action]:
        self.last_id = max(self.last_id, action.attempt)
        failing = self.chance(self.rates.coordinator)
        if failing and self.chance(0.5):
            return self.abort_counted(TimedOut(attempt=action.attempt, now_ms=self.now_ms))
        if failing:
            return self.abort_counted(
                CoordinatorSnapshotFailed(attempt=action.attempt, operator="source", cause="boom")
            )
        self.snapshot = self.enumerator.checkpoint(action.attempt)
        event = CoordinatorSnapshot(attempt=action.attempt, operator="source", data=self.snapshot)
        return self.feed(event)

    def ask_fallback(self, action: AskFallback) -> list[Action]:
        assert self.expected is not None
        composed = self.expected[1]
        origins = {region: c.origin for region, c in composed.items() if c.failed}
        assert action.origins == origins  # R30, R32
        failing = self.chance(self.rates.coordinator)
        if failing and self.chance(0.5):
            return self.abort_counted(TimedOut(attempt=action.attempt, now_ms=self.now_ms))
        if failing:
            return self.abort_counted(
                FallbackSnapshotFailed(attempt=action.attempt, operator="source", cause="boom")
            )
        corrected = self.enumerator.checkpoint_fallback(self.snapshot, dict(action.origins))
        event = FallbackSnapshot(attempt=action.attempt, operator="source", data=corrected)
        return self.feed(event)

    def abort_counted(self, event: Event) -> list[Action]:
        """Feed what must abort the attempt, and counts unless it must succeed (R24)."""
        self.expected = ("counted" if self.kind == "checkpoint" else "mandatory", {}, set())
        return self.feed(event)

    # --- regions ----------------------------------------------------------------------------------

    def run_attempt(self, action: RunAttempt) -> list[Action]:
        self.last_id = max(self.last_id, action.attempt)
        newest = self.disk[max(self.disk)]
        fresh = self.input[action.batch_id] if action.batch_id > newest.batch_id else set()
        assert action.new_rows == (action.batch_id > newest.batch_id)
        owed = {
            region
            for region, entry in newest.regions.items()
            if entry.failed or entry.in_flight_bytes or action.kind == "final"
        }
        assert action.owed.keys() == owed
        assert action.global_required == (
            self.oracle.must_be_global(action.kind) or self.oracle.first_decline_aborts(action.kind)
        )
        assert action.restart == self.oracle.must_restart(self.now_ms)  # R22
        self.told = Told(action.attempt, action.batch_id, action.kind, self.now_ms, owed)
        self.restart_told = action.restart
        tasks = self.random.randint(1, 3)
        lost = {task for task in range(tasks) if self.chance(self.rates.lost_task)}
        for place, region in enumerate(sorted(owed | fresh)):
            if place % tasks in lost:
                self.told.lost[region] = place % tasks
        scripts = [self.script(action, region, region in fresh) for region in sorted(owed | fresh)]
        self.enumerator.delivered(owed | fresh)
        released: list[Action] = []
        while any(scripts):
            script = self.random.choice([script for script in scripts if script])
            released += self.tell(script.pop(0))
            if self.late and self.chance(self.rates.repeat):
                released += self.late_answer()
            if self.coordinator.pending is None:
                return released
        return released + self.freeze(action)

    def late_answer(self) -> list[Action]:
        event = self.random.choice(self.late)
        assert isinstance(event, Acked | Declined)
        if event.attempt == self.coordinator.pending:
            return []
        found = self.feed(event)
        assert all(isinstance(action, ReleaseSegments) for action in found)
        return found

    def tell(self, event: Event) -> list[Action]:
        """Feed an answer, and note what the oracle needs of it."""
        assert self.told is not None
        if self.coordinator.pending != self.told.id:
            return []
        match event:
            case RegionStarted():
                self.told.events.append(("start", event.region, event.member, None))
            case Acked():
                content = self.content(event.entry)
                self.told.events.append(("ack", event.region, event.member, content))
                self.late.append(event)
            case Declined():
                stored = [self.rows_of(event.region, rows) for rows in event.in_flight]
                content = (stored, event.had_rows)
                self.told.events.append(("decline", event.region, event.member, content))
                self.late.append(event)
        actions = self.feed(event)
        if self.oracle.first_decline_aborts(self.told.kind) and isinstance(event, Declined):
            self.told.freeze_ms = self.now_ms
            first = [e for e in self.told.events if e[1:3] == (event.region, event.member)]
            if next(e[0] for e in first if e[0] != "start") == "decline":
                assert self.coordinator.pending is None  # R8
                self.expected = (self.oracle.kind_of_abort(self.told), {}, {event.region})
        return actions

    def script(self, action: RunAttempt, region: str, fresh: bool) -> list[Event]:
        """Return what one region will say, in this order."""
        attempt = action.attempt
        batch = action.batch_id if fresh else None
        started = RegionStarted(attempt=attempt, region=region, member="0")
        if self.told is not None and region in self.told.lost:
            task = f"task {self.told.lost[region]}"
            return [started, self.decline(attempt, region, batch, saved=True, task=task)]
        failing = self.chance(self.rates.decline * (10 if region in self.bad else 1))
        if not failing:
            unaligned = self.chance(self.rates.unaligned)
            ack = self.ack(attempt, region, batch, unaligned=unaligned)
            events: list[Event] = [started, ack]
            if self.chance(self.rates.repeat):
                events.append(ack)
            if self.chance(self.rates.repeat):
                events.append(self.ack(attempt, region, batch, unaligned=unaligned))
            if self.chance(self.rates.repeat):  # R7
                events.append(self.decline(attempt, region, batch, saved=True))
            return events
        saved = not self.chance(self.rates.unsaved)
        if self.chance(self.rates.silence):
            if saved:
                return [started, self.decline(attempt, region, batch, saved=True, member="rescue")]
            return [started] if self.chance(0.5) else []
        decline = self.decline(attempt, region, batch, saved=saved)
        events = [started, decline]
        if self.chance(self.rates.repeat):
            events.append(decline)
        if self.chance(self.rates.repeat):
            events.append(self.decline(attempt, region, batch, saved=True, member="1"))
        if self.chance(self.rates.repeat):
            events.append(self.ack(attempt, region, batch, unaligned=False))
        return events

    def freeze(self, action: RunAttempt) -> list[Action]:
        assert self.told is not None
        self.now_ms += self.random.randint(1, 50)
        self.told.freeze_ms = self.now_ms
        # Regions with rows that said nothing at all would be unknown; a driver finds them first.
        silent = {
            region
            for region in (self.input[action.batch_id] if action.new_rows else set())
            if not any(event[1] == region for event in self.told.events)
        }
        found: list[Action] = []
        for region in sorted(silent):
            found += self.tell(RegionStarted(attempt=action.attempt, region=region, member="0"))
        self.expected = self.oracle.judge(self.told)
        kind = self.random.choice([TasksEnded, TimedOut])
        found += self.feed(kind(attempt=action.attempt, now_ms=self.now_ms))
        published = any(isinstance(a, AskFallback | Publish) for a in found)
        assert published == (self.expected[0] == "published")
        return found

    # --- content ----------------------------------------------------------------------------------

    def ack(self, attempt: int, region: str, batch: int | None, *, unaligned: bool) -> Acked:
        """Apply what the base owes, then the batch; or leave the batch in flight."""
        base = self.disk[max(self.disk)].regions.get(region)
        batches: list[int] = []
        splits: set[int] = set()
        if base is not None:
            (batches, splits), owed = self.content(base)
            batches = [*batches, *(row for rows in owed for row in rows)]
        in_flight = []
        if batch is not None and unaligned:
            in_flight = [self.stored_rows(attempt, region, batch)]
        elif batch is not None:
            batches = [*batches, batch]
        splits = set(splits) | self.enumerator.sent_to(region)
        data = json.dumps([batches, sorted(splits)]).encode()
        stored = self.store.put(Owner(PIPELINE, "stats", region, "seen"), attempt, data)
        where: dict[str, Any] = (
            {"inline": stored}
            if isinstance(stored, bytes)
            else {"pieces": [Piece(stored, 0, len(data))]}
        )
        state = StateEntry("seen", "value", "|u1", (len(data),), **where)
        entry = RegionEntry(
            region,
            origin=attempt,
            operators=[OperatorEntry("stats", [state])],
            in_flight=in_flight,
        )
        return Acked(attempt=attempt, region=region, member="0", entry=entry)

    def decline(
        self,
        attempt: int,
        region: str,
        batch: int | None,
        *,
        saved: bool,
        member: str = "0",
        task: str | None = None,
    ) -> Declined:
        stored = [self.stored_rows(attempt, region, batch)] if batch is not None and saved else []
        return Declined(
            attempt=attempt,
            region=region,
            member=member,
            cause="boom",
            in_flight=stored,
            had_rows=batch is not None,
            task=task,
        )

    def stored_rows(self, attempt: int, region: str, batch: int) -> InFlight:
        data = json.dumps([batch]).encode()
        stored = self.store.put(in_flight_owner(region, attempt), attempt, data)
        if isinstance(stored, bytes):
            return InFlight(attempt, "source", 1, len(data), inline=stored)
        return InFlight(attempt, "source", 1, len(data), ref=stored)

    def rows_of(self, region: str, rows: InFlight) -> tuple[int, ...]:
        stored = rows.inline if rows.ref is None else rows.ref
        assert stored is not None
        return tuple(json.loads(self.store.get(in_flight_owner(region, rows.created), stored)))

    def content(self, entry: RegionEntry) -> tuple[Any, list[tuple[int, ...]]]:
        """Return the batches and splits in a region's state, and its stored rows."""
        state: Any = ((), ())
        for operator in entry.operators:
            (seen,) = operator.states
            owner = Owner(PIPELINE, operator.name, entry.region, seen.name)
            stored = seen.pieces[0].ref if seen.inline is None else seen.inline
            batches, splits = json.loads(self.store.get(owner, stored))
            state = (tuple(batches), tuple(splits))
        return state, [self.rows_of(entry.region, rows) for rows in entry.in_flight]

    # --- publication ------------------------------------------------------------------------------

    def publish(self, action: Publish) -> list[Action]:
        self.last_id = max(self.last_id, action.attempt)
        fails = self.chance(self.rates.publish)
        if not fails or self.chance(0.5):
            self.check_metadata(action.metadata)
            self.disk[action.attempt] = action.metadata
        if self.chance(self.rates.crash):
            if action.attempt in self.disk:
                self.log_published(action.metadata)
            raise CrashError
        if fails:
            failed = PublishFailed(attempt=action.attempt, cause="boom", now_ms=self.now_ms)
            found = self.abort_counted(failed)
            # The first action takes back what may have been written; a crash before it is one
            # before the event.
            found[:1] = self.do(found[0])
            return found
        self.log_published(action.metadata)
        return self.feed(Published(attempt=action.attempt, now_ms=self.now_ms))

    def log_published(self, metadata: CheckpointMetadata) -> None:
        content = {
            region: Content(entry.origin, *self.content(entry), entry.failed)
            for region, entry in metadata.regions.items()
        }
        at_ms = metadata.created_ms
        self.oracle.log.append(("published", metadata.id, content, at_ms))

    def ended(self, action: Ended) -> None:
        if action.outcome != "aborted" or self.expected is None:
            return
        why, _, blamed = self.expected
        at_ms = self.told.freeze_ms if self.told is not None else self.now_ms
        self.oracle.log.append(("aborted", why, blamed, at_ms, self.kind))

    # --- the manager ------------------------------------------------------------------------------

    def tell_manager(self, action: NotifyManagers) -> None:
        assert action.decided >= max(action.retained, default=0)
        if self.manager is None or self.chance(self.rates.lost_message):
            return
        arguments: list[Any] = [action.checkpoint]
        if action.message == "partially_completed":
            arguments.append(action.fallbacks)
        method = getattr(self.manager, action.message)
        method(*arguments, action.retained, decided=action.decided)
        self.check_segments()

    def release(self, action: ReleaseSegments) -> None:
        if self.manager is None:
            return
        if action.entry is not None:
            for operator, store, ref in action.entry.refs():
                self.manager.release(Owner(PIPELINE, operator, action.region, store), [ref])
        for rows in action.in_flight:
            assert rows.ref is not None
            self.manager.release(in_flight_owner(action.region, rows.created), [rows.ref])
        self.check_segments()

    def check_segments(self) -> None:
        """Everything that is on disk can be read, whichever messages were lost (R70)."""
        assert self.manager is not None
        for metadata in self.disk.values():
            for owner, _, ref in metadata.segments(PIPELINE):
                self.manager.read(ref, owner)

    # --- invariants -------------------------------------------------------------------------------

    def check_metadata(self, metadata: CheckpointMetadata) -> None:
        """Compare with the oracle, then with the input: every row once (R12, R16, R20 to R25)."""
        assert metadata.id == self.last_id
        entries = metadata.regions
        if metadata.batch_id == INITIAL_BATCH:
            assert dict(entries) == {}
            return
        assert self.expected is not None
        assert self.told is not None
        self.survived_lost_tasks += bool(self.told.lost)
        why, composed, _ = self.expected
        assert why == "published"
        assert entries.keys() == composed.keys()
        failed = set()
        for region, entry in entries.items():
            expected = composed[region]
            assert entry.origin == expected.origin  # R30
            assert entry.failed == expected.failed
            assert self.content(entry) == (expected.state, expected.in_flight)
            count, since = self.oracle.fallbacks(region)
            if entry.failed:
                failed.add(region)
                assert entry.fallbacks == count + 1
                assert entry.stale_since_ms == (metadata.created_ms if since is None else since)
                bound = self.options.max_region_staleness
                assert entry.fallbacks <= bound.checkpoints  # R22
                assert region not in self.restart_told
            else:
                assert (entry.fallbacks, entry.stale_since_ms) == (0, None)
        count, _ = self.oracle.consecutive()
        expected_count = count + 1 if failed else 0
        assert metadata.consecutive_regional == expected_count  # R20
        assert metadata.force_global == (
            bool(failed) and expected_count >= self.options.max_consecutive_failures
        )
        if metadata.kind != "checkpoint":  # R25
            assert not failed
            assert not any(entry.in_flight_bytes for entry in entries.values())
        self.check_rows(metadata)
        self.check_splits(metadata)

    def check_rows(self, metadata: CheckpointMetadata) -> None:
        for region in self.regions:
            rows = {b for b, names in self.input.items() if region in names}
            due = Counter(b for b in rows if b <= metadata.batch_id)
            entry = metadata.regions.get(region)
            (batches, _), stored = ((), ()), []
            if entry is not None:
                (batches, _), stored = self.content(entry)
            assert Counter([*batches, *(row for part in stored for row in part)]) == due

    def check_splits(self, metadata: CheckpointMetadata) -> None:
        """Every split is in exactly one place of the checkpoint (R32)."""
        if not self.with_source:
            return
        pool, _ = json.loads(metadata.coordinators["source"])
        places = Counter(pool)
        for entry in metadata.regions.values():
            (_, splits), _ = self.content(entry)
            places.update(splits)
        assert set(places.values()) == {1}
        assert len(places) == 1000

    def check_reset(self, action: ResetRegion) -> None:  # R33
        newest = self.disk[max(self.disk)]
        entry = newest.regions.get(action.region)
        assert action.origin == (newest.id if entry is None else entry.origin)

    def check_effective(self, action: NotifyCoordinator) -> None:  # R34
        if action.kind == "completed":
            _, regions = self.oracle.base()
            assert action.effective == {
                region: content.origin if content.failed else action.attempt
                for region, content in regions.items()
            }

    def check_retry(self, action: Retry) -> None:
        """Nobody tries again who should have given up, or without a pause (R22, R24)."""
        assert self.oracle.counted_aborts() <= self.options.tolerable_failed_checkpoints
        assert self.expected is not None
        if self.told is not None:
            assert not self.expected[2] & self.restart_told
        at_ms = self.oracle.log[-1][3]
        assert not self.repeated_for_too_long(at_ms)
        assert action.pause_ms == self.oracle.pause_ms(at_ms)
        self.now_ms += action.pause_ms

    def repeated_for_too_long(self, now_ms: int) -> bool:
        """Whether an attempt that must succeed has failed for as long as it may (R24, R25)."""
        since = self.oracle.repeated_since()
        if self.kind == "checkpoint" or since is None:
            return False
        return now_ms - since >= self.options.global_timeout_ms

    def check_failure(self, action: FailQuery) -> None:
        """The query fails only for a region that was restarted, too many aborts, or too long."""
        aborts = self.oracle.counted_aborts()
        assert self.expected is not None
        if in_vain := self.expected[2] & self.restart_told:
            assert any(f"region {region!r} failed again" in action.error for region in in_vain)
        elif "global_timeout" in action.error:
            assert self.repeated_for_too_long(self.oracle.log[-1][3])
        else:
            assert aborts > self.options.tolerable_failed_checkpoints

    def check_end(self) -> None:
        """The last checkpoint is final, holds every row, and only what is retained is on disk."""
        newest = self.disk[max(self.disk)]
        assert newest.kind == "final"
        assert newest.batch_id == self.batches - 1
        ordinary = [id for id, metadata in self.disk.items() if metadata.kind != "savepoint"]
        assert len(ordinary) <= self.options.num_retained
        assert self.committed[newest.id] <= set(newest.regions)


def in_flight_owner(region: str, created: int) -> Owner:
    return Owner(PIPELINE, "in-flight", region, str(created))


def names(count: int) -> Iterable[str]:
    return [f"r{number}" for number in range(count)]
