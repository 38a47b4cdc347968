"""Runs the tasks of a history, with all possible failures, and tells its managers."""

from __future__ import annotations

import itertools
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.coordinator import (
    Acked,
    Declined,
    HistoryRecord,
    NotifyManagers,
    RegionStarted,
)
from holdfast.regions.driver.task_runner import TasksLostError
from holdfast.regions.protocol.answers import Answer
from holdfast.regions.protocol.orders import AttemptOrder, ClosingOrder
from holdfast.regions.runners.local import tell_manager
from support.regional.coordinator_oracle import RETIRED, Told
from support.regional.coordinator_regions import in_file, segments_of

if TYPE_CHECKING:
    from support.regional.coordinator_world import World


@dataclass
class HostileRunner:
    """Runs regions that fail, fall silent and repeat themselves, in tasks that are lost."""

    world: World
    late: list[list[Answer]] = field(default_factory=list)

    def run(
        self, order: AttemptOrder, source: object | None, owed: Sequence[str]
    ) -> Generator[Answer, None, None]:
        world = self.world
        world.may_crash()
        self.check_order(order)
        told = world.told
        assert told is not None
        assert not world.over
        rows: Any = source if source is not None else ()
        asked = [region for region in (*rows, *owed) if region not in order.answered]
        told.asked |= set(asked)
        assert order.lost is None or order.retire <= world.may_retire_now()
        newest = world.newest
        assert newest is not None
        assert source is None or told.batch_id > newest.batch_id
        tasks = 1 + order.attempt % 3
        lost = {task for task in range(tasks) if world.chance(world.rates.lost_task)}
        scripts = []
        together: dict[int, list[Answer]] = {}
        for region in asked:
            partition = world.regions.index(region) % tasks
            batch = told.batch_id if source is not None else None
            script = self.script(order, region, partition, batch)
            if lost and world.chance(0.5 if partition in lost else 0.2):
                started = RegionStarted(attempt=order.attempt, region=region)
                script = iter([started][: world.random.randint(0, 1)])
            scripts.append(map(Answer, itertools.repeat(partition), script))
        while scripts:
            script = world.random.choice(scripts)
            answer = next(script, None)
            if answer is None:
                scripts.remove(script)
                continue
            if self.late and world.chance(world.rates.repeat):
                yield from world.random.choice(self.late)
            if self.shares(answer, order, together.get(answer.partition, [])):
                together.setdefault(answer.partition, []).append(answer)
                if world.chance(0.3):
                    yield from self.note_together(together.pop(answer.partition))
                continue
            ends = self.note(answer, order, owed=source is None)
            yield answer
            assert not ends, "tasks of an attempt that is over still run"
        for partition, group in together.items():
            # The task may die before it sends the content of its file.
            if partition not in lost or world.chance(0.5):
                yield from self.note_together(group)
            else:  # its segments stay unknown
                world.leaked |= {ref for answer in group for ref in segments_of(answer.event)}
        world.may_crash()
        if lost:
            told.tasks_failed = order.lost is None
            known = source is not None and world.chance(0.8)
            raise TasksLostError("boom", partition=min(lost) if known else None)

    def check_order(self, order: AttemptOrder) -> None:
        world = self.world
        world.begin(order.attempt)
        newest = world.newest
        assert newest is not None
        assert order.base == newest
        assert order.drain == (world.kind == "final")
        assert order.end_of_data == world.end_of_data
        if world.told is not None:
            return
        # R40 to R43: the ends of attempts since the last order, for regions.
        found = [(ended.attempt, ended.outcome, dict(ended.fallbacks)) for ended in order.ended]
        assert found == world.endings
        world.endings = []
        owed = {
            region
            for region, entry in newest.regions.items()
            if entry.failed
            or entry.in_flight_bytes
            or in_quarantine(entry)
            or (world.end_of_data and entry.operators and not entry.finished)
        }
        stored = world.oracle.held() - world.replay
        batch = newest.batch_id + (world.kind == "checkpoint")
        world.told = Told(order.attempt, batch, world.kind, order.created_ms, owed - stored)
        world.told.stored, world.told.excused = stored, world.oracle.held()
        world.told.last_try = world.oracle.last_try()
        assert (order.quarantined, order.excused) == (stored, world.told.excused)  # R27, R29
        # A region that gets events must answer, too.
        world.told.owed |= order.events.keys()
        assert order.restart == world.oracle.must_restart(order.created_ms)  # R22
        must = world.oracle.must_be_global(world.kind) or world.oracle.first_decline_aborts()
        assert order.global_required == (must and not world.told.last_try)
        world.restart_told = order.restart

    def script(
        self, order: AttemptOrder, region: str, partition: int, batch: int | None
    ) -> Iterator[RegionStarted | Acked | Declined]:
        """Yield the answers of one region, in this order."""
        world, rates = self.world, self.world.rates
        saves = not order.global_required or region in order.excused
        saved = saves and not world.chance(rates.unsaved)

        def decline(cause: str = "boom", *, saved: bool = saved) -> Declined:
            return world.content.decline(order.attempt, region, batch, cause, saved=saved)

        def ack() -> Acked:
            assert world.newest is not None
            if region in order.retire:
                return world.content.retire(order.attempt, region)
            base = world.newest.regions.get(region)
            if base is not None and region in order.quarantined:
                merged = world.random.choice([0, 0, 1, 9])
                return world.content.keep(order.attempt, base, batch, merged=merged)
            return world.content.ack(
                order.attempt,
                region,
                base,
                batch,
                [int(sent.event) for sent in order.events.get(region, ())],
                unaligned=not order.drain and world.chance(rates.unaligned),
                finished=order.end_of_data,
            )

        started = RegionStarted(attempt=order.attempt, region=region)
        if order.only_stores(partition):
            yield from (started, decline(order.lost_cause))
            return
        if not world.chance(rates.decline * (10 if region in world.bad else 1)):
            acked = ack()
            yield from (started, acked)
            if world.chance(rates.repeat):
                yield acked
            if world.chance(rates.repeat):  # Its task ran twice.
                yield from (started, ack())
            if world.chance(rates.repeat):  # R7
                yield decline(saved=True)
            return
        if world.chance(rates.silence):
            if batch is not None or world.chance(0.5):
                yield started
            return
        declined = decline()
        yield from (started, declined)
        if world.chance(rates.repeat):
            yield declined
        if world.chance(rates.repeat):
            yield decline(saved=saves)
        if world.chance(rates.repeat):
            yield ack()

    def shares(self, answer: Answer, order: AttemptOrder, group: Sequence[Answer]) -> bool:
        """True if rows of the region of an answer share a file with others."""
        rate, region = self.world.rates.together, answer.event.region
        return (
            rate > 0
            and isinstance(answer.event, Acked)
            and order.lost == frozenset()
            and region not in order.retire | order.quarantined
            and all(other.event.region != region for other in group)
            and self.world.chance(rate)
        )

    def note_together(self, group: Sequence[Answer]) -> Sequence[Answer]:
        """Note acknowledgements that count together, and return them with their file."""
        world, told = self.world, self.world.told
        assert told is not None
        regions = [answer.event.region for answer in group]
        path = f"{told.id}/{'+'.join(regions)}"
        world.files[path] = set(regions)
        fresh = all(world.oracle.first_answer(told, region) is None for region in regions)
        sent = []
        for left, answer in zip(reversed(range(len(group))), group, strict=True):
            acked = in_file(answer.event, path)
            world.refused |= segments_of(acked)
            if fresh:
                told.events.append(("ack", acked.region, world.content.content(acked.entry)))
            sent.append(replace(answer, event=acked, with_next=left > 0))
        self.late.append(sent)
        return sent

    def note(self, answer: Answer, order: AttemptOrder, *, owed: bool) -> bool:
        """Note an answer for the oracle; returns whether it ends the attempt (R8)."""
        world = self.world
        told, event, region = world.told, answer.event, answer.event.region
        assert told is not None
        if isinstance(event, RegionStarted):
            told.events.append(("start", region, None))
            return False
        first = world.oracle.first_answer(told, region)
        world.refused |= segments_of(event)
        self.late.append([answer])
        if isinstance(event, Acked):
            retired = region in order.retire
            content = RETIRED if retired else world.content.content(event.entry)
            told.events.append(("ack", region, content))
            return False
        stored = [world.content.rows_of(region, rows) for rows in event.in_flight]
        told.events.append(("decline", region, (stored, event.had_rows)))
        if first is None and order.only_stores(answer.partition):
            told.lost[region] = "owed" if owed else f"partition {answer.partition}"
        if first == "ack" or not world.oracle.first_decline_aborts() or region in told.excused:
            return False
        world.expected = (world.oracle.kind_of_abort(told), {}, {region})
        return True

    def tell_managers(self, message: NotifyManagers) -> None:
        world = self.world
        world.may_crash()
        if message.message == "aborted":
            world.aborted(message.checkpoint)
        assert message.decided >= max(message.retained, default=0)
        assert sorted(message.retained) == sorted(world.disk)  # R70, R76
        world.check_retained()
        released = {ref for refs in message.released.values() for ref in refs}
        assert released == world.refused  # R3
        world.refused = set()
        if world.manager is None:
            return
        if world.chance(world.rates.lost_message):
            world.leaked |= released
            return
        tell_manager(world.manager, message)
        world.check_segments()

    def restore(self, retained: Sequence[CheckpointMetadata]) -> None:
        assert sorted(metadata.id for metadata in retained) == sorted(self.world.disk)

    def reclaim(self, retained: Sequence[CheckpointMetadata]) -> None:
        assert sorted(metadata.id for metadata in retained) == sorted(self.world.disk)

    def close_operators(self, order: ClosingOrder) -> None:
        newest = self.world.newest
        assert newest is not None
        assert order.base == newest

    def show_metrics(self, sums: Mapping[str, float]) -> None:
        pass

    def show_attempt(self, record: HistoryRecord) -> None:
        pass

    def close(self) -> None:
        raise AssertionError("the driver does not close its runner")
