"""The driver of a pipeline with all possible failures around it, from one seed."""

from __future__ import annotations

import json
import random
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pyarrow as pa

from holdfast import SegmentRef, SnapshotManager
from holdfast._core import CheckpointMetadata, Staged
from holdfast.files.mounted import MountedPath
from holdfast.regions.base.clock import Clock
from holdfast.regions.base.errors import RegionalQueryError
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.checkpoint.history import HistoryLog
from holdfast.regions.coordinator import (
    INITIAL_BATCH,
    CoordinatorOptions,
    Topology,
)
from holdfast.regions.coordinator.operator_coordinator import OperatorCoordinator
from holdfast.regions.driver.coordinator_host import CoordinatorHost
from holdfast.regions.driver.pipeline_driver import PipelineDriver
from holdfast.regions.files.folders import CheckpointFolders
from holdfast.regions.protocol.orders import OutputPlan, PipelinePlan, StagePlan
from holdfast.regions.splits.assignment import SOURCE_OPERATOR
from support.regional.coordinator_enumerator import SPLITS, Enumerator
from support.regional.coordinator_oracle import RETIRED, Content, Oracle, Told
from support.regional.coordinator_regions import (
    PIPELINE,
    InlineStore,
    ManagerStore,
    Regions,
    target,
)
from support.regional.coordinator_runner import HostileRunner


class CrashError(BaseException):
    """The driver died. No `except Exception` of the driver survives that."""


class MortalHost(CoordinatorHost):
    """Lets a driver die in a call of a coordinator, whose host takes all errors for its own."""

    def __init__(self, world: World, coordinators: Mapping[str, OperatorCoordinator]) -> None:
        super().__init__(coordinators, timeout_s=60)
        self._world = world

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name.startswith("_") or not callable(found):
            return found

        def call(*arguments: Any, **named: Any) -> Any:
            try:
                return found(*arguments, **named)
            finally:
                if self._world.dying:
                    raise CrashError

        return call


@dataclass(frozen=True, kw_only=True)
class Rates:
    """Frequencies of failures, each between 0 and 1."""

    crash: float = 0.0
    decline: float = 0.0
    silence: float = 0.0
    unsaved: float = 0.0
    repeat: float = 0.0
    coordinator: float = 0.0
    publish: float = 0.0
    lost_message: float = 0.0
    undeleted: float = 0.0
    drain: float = 0.0
    unaligned: float = 0.0
    together: float = 0.0
    lost_task: float = 0.0


@dataclass
class World:
    """One history of a real `PipelineDriver`. `run` raises if a rule is broken."""

    regions: Sequence[str]
    batches: int
    options: CoordinatorOptions
    rates: Rates
    seed: int
    folder: Path
    manager: SnapshotManager | None = None
    with_source: bool = True
    on_retire: bool = True

    disk: dict[int, CheckpointMetadata] = field(default_factory=dict)
    failed_query: str | None = None
    broken: AssertionError | None = None
    dying: bool = False
    attempts: int = 0
    survived_lost_tasks: int = 0
    refused_deletes: int = 0
    shared_files: int = 0
    retired: int = 0
    # Metadata that could not be deleted when it was last tried.
    undeleted: set[int] = field(default_factory=set)
    # The attempt under way.
    attempt: int = 0
    kind: str = "checkpoint"
    end_of_data: bool = False
    told: Told | None = None
    expected: tuple[str, dict[str, Content], set[str]] | None = None
    restart_told: frozenset[str] = frozenset()
    # Regions with rows in a file that several share.
    files: dict[str, set[str]] = field(default_factory=dict)
    # Regions in quarantine that get another attempt.
    replay: set[str] = field(default_factory=set)
    replayed: int = 0
    repaired: bool = False
    over: bool = False
    # The driver must pass these on: endings to regions, refused segments to managers.
    endings: list[tuple[int, str, dict[str, int]]] = field(default_factory=list)
    refused: set[SegmentRef] = field(default_factory=set)
    # Refused segments unknown to managers: a message was lost, or the driver died.
    leaked: set[SegmentRef] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)  # noqa: S311
        self.oracle = Oracle(self.options)
        # Pipelines with a quarantine have no coordinators.
        self.with_source &= self.options.quarantine_after is None
        self.content = Regions(
            InlineStore() if self.manager is None else ManagerStore(self.manager)
        )
        self.folders = HostileFolders(self.folder, self)
        self.runner = HostileRunner(self)
        self.clock = HostileClock(self)
        self.enumerator = Enumerator(self)
        # The input is the same in each run of a batch.
        self.input = {
            batch: {r for r in self.regions if self.random.random() < 0.6}
            for batch in range(self.batches)
        }
        self.bad = {r for r in self.regions if self.random.random() < 0.2}

    def chance(self, rate: float) -> bool:
        return self.random.random() < rate

    def may_crash(self) -> None:
        if self.chance(self.rates.crash):
            self.die()

    def die(self) -> NoReturn:
        self.dying = True
        raise CrashError

    @property
    def newest(self) -> CheckpointMetadata | None:
        return self.disk[max(self.disk)] if self.disk else None

    # --- life of the driver -----------------------------------------------------------------------

    def run(self) -> None:
        """Run all batches and end the data, with restarts, unless the query fails before."""
        self.boot()
        while self.failed_query is None and (job := self.next_job()) is not None:
            try:
                job()
            except CrashError:
                self.crashed()
                self.boot()
            except RegionalQueryError as error:
                self.check_failure(str(error))
                self.failed_query = str(error)
        self.host.close()
        if self.failed_query is None:
            self.check_end()

    def next_job(self) -> Callable[[], None] | None:
        newest = self.disk[max(self.disk)]
        self.count_attempt()
        self.end_of_data = False
        if newest.batch_id + 1 >= self.batches:
            held = self.oracle.held() - self.replay
            if all(
                entry.finished or not (entry.operators or entry.fallbacks)
                for region, entry in newest.regions.items()
                if region not in held
            ):
                return self.repair if held else None
            self.kind, self.end_of_data = "final", True
            return self.driver.end_of_data
        if self.chance(self.rates.drain):
            self.kind = "final"
            return self.driver.finish
        self.kind = "checkpoint"
        batch = newest.batch_id + 1
        return lambda: self.driver.run_batch(batch, sorted(self.input[batch]))

    def repair(self) -> None:
        """Repair everything: the next start replays regions in quarantine."""
        assert not self.repaired  # R29
        self.repaired = True
        self.rates, self.bad = Rates(), set()
        raise CrashError

    def count_attempt(self) -> None:
        self.attempts += 1
        if self.attempts > 6 * self.batches + 20:  # Everything is repaired in the end.
            self.rates, self.bad = Rates(), set()

    def boot(self) -> None:
        """Start a driver, only from the disk, until it survives its start."""
        while True:
            self.enumerator = Enumerator(self)
            sources = {SOURCE_OPERATOR: self.enumerator} if self.with_source else {}
            self.host = MortalHost(self, sources)
            self.kind, self.end_of_data = "checkpoint", False
            self.told = self.expected = None
            self.replay = self.oracle.held()
            self.driver = PipelineDriver(
                self.plan(),
                Topology(
                    pipeline=PIPELINE,
                    operators=(SOURCE_OPERATOR, "stats"),
                    coordinators=self.host.supports_fallback(),
                    fingerprint=b"1",
                ),
                self.options,
                self.folders,
                self.runner,
                Output(self),
                self.host,
                history=HistoryLog(self.folders, run="0" * 32, days=7),
                clock=self.clock,
            )
            try:
                self.driver.start(verify=False)
            except CrashError:
                self.crashed()
            except RegionalQueryError:
                # The checkpoint of empty states was not published: start again.
                assert not self.disk
                self.crashed()
            else:
                return

    def crashed(self) -> None:
        self.dying = False
        if self.broken is not None:
            raise self.broken
        self.host.close()
        self.oracle.log.append(("crash",))
        self.leaked |= self.refused
        self.refused = set()
        self.endings = []

    def plan(self) -> PipelinePlan:
        sink: Any = Location("out")
        stage = StagePlan("stats", b"", pa.schema([]), on_retire=self.on_retire)
        output = OutputPlan("", stage.schema, sink)
        return PipelinePlan(PIPELINE, "0" * 32, ("region",), (stage,), (output,))

    # --- one attempt ------------------------------------------------------------------------------

    def begin(self, attempt: int) -> None:
        """Note that an attempt is under way."""
        if attempt != self.attempt:
            assert attempt > self.attempt  # R2
            self.attempt = attempt
            self.told = self.expected = None
            self.over = False
            self.refused = set()

    def judge_idle(self, metadata: CheckpointMetadata) -> None:
        """Note a final attempt that has no region to run, because one is in quarantine again."""
        held = self.oracle.held()
        assert held
        self.endings = []  # R43: they were in an order that no task got
        self.told = Told(metadata.id, metadata.batch_id, "final", metadata.created_ms, set())
        self.told.stored = self.told.excused = held

    def fails_counted(self) -> None:
        """Note that the attempt aborts, which counts unless it must succeed (R24)."""
        self.expected = ("counted" if self.kind == "checkpoint" else "mandatory", {}, set())

    def judged(self) -> tuple[str, dict[str, Content], set[str]]:
        """Return the result of the attempt, now that its answers are frozen."""
        if self.expected is None:
            assert self.told is not None
            assert self.told.tasks_failed or self.told.owed <= self.told.asked
            self.expected = self.oracle.judge(self.told)
        return self.expected

    def may_retire_now(self) -> set[str]:
        """Return the regions that may be retired now that all rows of the batch are known (R66)."""
        assert self.told is not None
        rows = {region for what, region, content in self.told.events if content is not RETIRED}
        idle = self.oracle.idle_ms(self.told.trigger_ms)
        least = self.options.retire_idle_ms
        return {
            region
            for region, ms in idle.items()
            if least is not None
            and ms >= least
            and region not in rows
            and self.oracle.at_rest(region)
        }

    def aborted(self, attempt: int) -> None:
        assert attempt == self.attempt
        why, _, blamed = self.judged()
        assert why != "published"
        self.over = True
        if self.told is not None:
            self.replay -= self.oracle.failed(self.told)
        self.refused = set()  # The decision makes all of the attempt dead.
        self.oracle.log.append(("aborted", why, blamed, self.clock.read_ms, self.kind))
        self.endings.append((attempt, "aborted", {}))

    def published(self, metadata: CheckpointMetadata) -> None:
        content = {
            region: Content(
                entry.origin,
                *self.content.content(entry),
                entry.failed,
                held=in_quarantine(entry),
                count=entry.fallbacks,
                retired=not (entry.operators or entry.fallbacks),
            )
            for region, entry in metadata.regions.items()
        }
        trigger_ms = 0 if self.told is None else self.told.trigger_ms
        self.oracle.log.append(("published", metadata.id, content, metadata.created_ms, trigger_ms))
        self.replayed += any(not content[region].held for region in self.replay)
        self.replay = set()
        failed = {region: c.origin for region, c in content.items() if c.failed}
        self.endings.append((metadata.id, "regional" if failed else "global", failed))
        self.refused -= {ref for e in metadata.regions.values() for _, _, ref in e.refs()}

    # --- invariants -------------------------------------------------------------------------------

    def check_metadata(self, metadata: CheckpointMetadata) -> None:
        """Compare with the oracle, then with the input: every row once (R12, R16, R20 to R25)."""
        assert metadata.id > max(self.disk, default=0)
        entries = metadata.regions
        if metadata.batch_id == INITIAL_BATCH:
            assert dict(entries) == {}
            return
        if self.told is None and self.kind == "final":
            self.judge_idle(metadata)
        assert metadata.id == self.attempt
        assert self.told is not None
        why, composed, _ = self.judged()
        assert why == "published"
        self.survived_lost_tasks += bool(self.told.lost)
        may, must = self.oracle.may_retire(self.told)
        retired = composed.keys() - entries.keys()
        assert entries.keys() <= composed.keys()
        assert not (retired and self.on_retire)
        assert must <= retired <= may  # R66
        self.retired += len(retired) + sum(content.retired for content in composed.values())
        failed = set()
        for region, entry in entries.items():
            expected = composed[region]
            assert bool(entry.staged) == (entry.origin == metadata.id and not entry.failed)
            assert entry.origin == expected.origin  # R30
            assert (entry.failed, in_quarantine(entry)) == (expected.failed, expected.held)
            assert entry.fallbacks == expected.count
            assert self.content.content(entry) == (expected.state, expected.in_flight)
            count, since = self.oracle.fallbacks(region)
            if entry.failed:
                failed.add(region)
                assert entry.fallbacks == count + 1
                assert entry.stale_since_ms == (metadata.created_ms if since is None else since)
                bound = self.options.max_region_staleness
                assert entry.fallbacks <= bound.checkpoints  # R22
                assert region not in self.restart_told
            elif not expected.held:
                assert (entry.fallbacks, entry.stale_since_ms) == (0, None)
        count, _ = self.oracle.consecutive()
        expected_count = count + 1 if failed else 0
        assert metadata.consecutive_regional == expected_count  # R20
        assert metadata.force_global == (
            bool(failed) and expected_count >= self.options.max_consecutive_failures
        )
        if metadata.kind != "checkpoint":  # R25
            assert not failed
            owing = {region for region, entry in entries.items() if entry.in_flight_bytes}
            assert all(composed[region].held for region in owing)
        self.check_rows(metadata)
        self.check_splits(metadata)
        self.check_files(metadata)

    def check_files(self, metadata: CheckpointMetadata) -> None:
        """A file is in the checkpoint with all of its regions (R84)."""
        found: dict[str, set[str]] = {}
        for region, entry in metadata.regions.items():
            for one in entry.staged:
                found.setdefault(one.path, set()).add(region)
        for path, regions in found.items():
            assert regions == self.files.get(path, regions)
        self.shared_files += len(found.keys() & self.files.keys())

    def check_rows(self, metadata: CheckpointMetadata) -> None:
        for region in self.regions:
            rows = {b for b, names in self.input.items() if region in names}
            due = Counter(b for b in rows if b <= metadata.batch_id)
            due -= Counter(
                row for batches, _ in self.retired_with(metadata, region) for row in batches
            )
            entry = metadata.regions.get(region)
            (batches, _), stored = ((), ()), []
            if entry is not None:
                (batches, _), stored = self.content.content(entry)
            assert Counter([*batches, *(row for part in stored for row in part)]) == due

    def check_splits(self, metadata: CheckpointMetadata) -> None:
        """Every split is in exactly one place of the checkpoint (R32)."""
        if not self.with_source:
            return
        pool, _ = json.loads(metadata.coordinators[SOURCE_OPERATOR])
        places = Counter(pool)
        for region in self.regions:
            for _, splits in self.retired_with(metadata, region):
                places.update(splits)
        for entry in metadata.regions.values():
            (_, splits), _ = self.content.content(entry)
            places.update(splits)
        assert set(places.values()) == {1}
        assert len(places) == SPLITS

    def retired_with(self, metadata: CheckpointMetadata, region: str) -> Iterator[Any]:
        """Yield the states with which a region was retired up to a checkpoint that is new."""
        entry = metadata.regions.get(region)
        now = entry is not None and bool(entry.operators or entry.fallbacks)
        states = [regions.get(region) for _, regions, _ in self.oracle.published()]
        here = [content is not None and not content.retired for content in states]
        for content, stays in zip(states, [*here[1:], now], strict=True):
            if content is not None and not content.retired and not stays:
                yield content.state

    def check_segments(self) -> None:
        """Everything on disk can be read in spite of lost messages (R70)."""
        assert self.manager is not None
        for metadata in self.disk.values():
            for owner, _, ref in metadata.segments(PIPELINE):
                self.manager.read(ref, owner)

    def check_retry(self, pause_ms: int) -> None:
        """No attempt is repeated beyond its bounds, or without a pause (R22, R24)."""
        assert self.oracle.counted_aborts() <= self.options.tolerable_failed_checkpoints
        assert self.expected is not None
        if self.told is not None and not self.oracle.quarantines():
            assert not self.expected[2] & self.restart_told
        at_ms = self.oracle.log[-1][3]
        assert not self.repeated_for_too_long(at_ms) or self.oracle.last_try()
        assert pause_ms == self.oracle.pause_ms(at_ms)

    def repeated_for_too_long(self, now_ms: int) -> bool:
        """True if an attempt that must succeed has failed for as long as allowed (R24, R25)."""
        since = self.oracle.repeated_since()
        if self.kind == "checkpoint" or since is None:
            return False
        return now_ms - since >= self.options.global_timeout_ms

    def check_failure(self, error: str) -> None:
        """The query fails only for a region that was restarted, too many aborts, or too long."""
        aborts = self.oracle.counted_aborts()
        assert self.expected is not None, error
        in_vain = self.expected[2] & self.restart_told
        if self.expected[0] == "overfull":
            assert "max_quarantined_bytes" in error
        elif in_vain and not self.oracle.quarantines():
            assert any(f"region {region!r} failed again" in error for region in in_vain)
        elif "global_timeout" in error:
            assert self.repeated_for_too_long(self.oracle.log[-1][3])
        else:
            assert aborts > self.options.tolerable_failed_checkpoints

    def check_end(self) -> None:
        """The last checkpoint has every row as finished, and only retained files exist."""
        newest = self.newest
        assert newest is not None
        assert newest.batch_id == self.batches - 1
        running = [entry for entry in newest.regions.values() if entry.operators]
        assert all(entry.finished for entry in running)
        assert newest.kind == "final" or not running
        self.check_retained()

    def check_retained(self) -> None:
        """The newest checkpoints exist, and fewer old ones than are dropped at once (R70, R76)."""
        newest = set(self.oracle.retained())
        assert newest <= self.disk.keys()
        older = self.disk.keys() - newest
        assert older <= self.undeleted or len(older) < self.options.dropped_together


class HostileClock(Clock):
    """Every look at it takes time; pauses take no real time."""

    def __init__(self, world: World) -> None:
        super().__init__()
        self.world = world
        self.read_ms = 1_000

    def now_ms(self) -> int:
        self.read_ms += self.world.random.randint(1, 50)
        return self.read_ms

    def pause(self, ms: int) -> bool:
        self.world.check_retry(ms)
        self.world.count_attempt()
        self.world.may_crash()
        self.read_ms += ms
        return True


@dataclass(frozen=True)
class Location:
    """A sink with only the driver's half."""

    location: str


@dataclass(frozen=True)
class Output:
    """The driver's half of the sink."""

    world: World

    def commit(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """R80, R81: regions that took part and did not fail, once the metadata exists."""
        world = self.world
        world.may_crash()
        id, regions = world.oracle.base()
        assert checkpoint == id == max(world.disk)
        names = {r for r, c in regions.items() if c.origin == id and not c.failed}
        assert {file.target for file in staged} == {target(name, id) for name in names}

    def recover(self, checkpoint: int, staged: Iterable[Staged]) -> None:
        """R74: at a start, the same again."""
        self.commit(checkpoint, staged)

    def sweep(self, before_attempt: int) -> None:
        self.world.may_crash()
        assert before_attempt == max(self.world.disk) + 1

    def take_over(self, folder: Path, checkpoint: int, staged: Iterable[Staged]) -> None:
        raise AssertionError("no pipeline begins from another one here")


class HostileFolders(CheckpointFolders):
    """A checkpoint folder whose writes fail, or may have failed."""

    def __init__(self, root: Path, world: World) -> None:
        super().__init__(root)
        object.__setattr__(self, "world", world)

    world: World

    def publish(self, metadata: CheckpointMetadata) -> None:
        world = self.world
        world.begin(metadata.id)
        fails = world.chance(world.rates.publish)
        world.check_metadata(metadata)
        if not fails or world.chance(0.5):
            super().publish(metadata)
            world.disk[metadata.id] = metadata
        if world.chance(world.rates.crash):
            if metadata.id in world.disk:
                world.published(metadata)
            raise CrashError
        if fails:
            world.fails_counted()
            raise OSError("boom")
        world.published(metadata)

    @property
    def dropped_together(self) -> int:
        return self.world.options.dropped_together

    def drop(self, *ids: int) -> None:
        for id in ids:
            self._drop(id)

    def _drop(self, id: int) -> None:
        world = self.world
        known = {id for id, _, _ in world.oracle.published()}
        if world.chance(world.rates.crash):
            # A publication in doubt took place: a restart finds it.
            if id in world.disk and id not in known:
                world.published(world.disk[id])
            raise CrashError
        # Deleted files are not refused: several may be deleted before one is refused.
        if id in known and id in world.disk and world.chance(world.rates.undeleted):
            world.refused_deletes += 1
            world.undeleted.add(id)
            raise OSError("the file system refuses")
        super().drop(id)
        world.disk.pop(id, None)
        world.undeleted.discard(id)


def names(count: int) -> Iterable[str]:
    return [f"r{number}" for number in range(count)]


@contextmanager
def memory_folder() -> Iterator[MountedPath]:
    """A folder for a history, in memory if the system can: disks are slow."""
    memory = Path("/dev/shm")  # noqa: S108
    with tempfile.TemporaryDirectory(dir=memory if memory.is_dir() else None) as folder:
        yield MountedPath(folder)
