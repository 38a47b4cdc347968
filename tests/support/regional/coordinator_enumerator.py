"""A coordinator of an operator that gives splits to regions."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

from holdfast.regions.coordinator import CheckpointInfo
from holdfast.regions.coordinator.operator_coordinator import EventGateway, OperatorCoordinator
from holdfast.regions.splits.assignment import SOURCE_OPERATOR

if TYPE_CHECKING:
    from support.regional.coordinator_world import World

SPLITS = 1000


class Enumerator(OperatorCoordinator):
    """Gives splits to regions before a snapshot, and after it.

    `given` has the region and the attempt of every split: a split whose region starts again without
    `region_reset` would be lost.
    """

    supports_fallback = True
    takes_back_events = True

    def __init__(self, world: World) -> None:
        self.world = world
        self.pool: set[int] = set()
        self.given: dict[int, tuple[str, int]] = {}
        self.fresh: dict[int, str] = {}

    @contextmanager
    def checked(self) -> Iterator[None]:
        """Let a broken rule end the history: the host takes errors for the coordinator's."""
        try:
            yield
        except AssertionError as error:
            self.world.broken = error
            self.world.die()

    def start(self, gateway: EventGateway) -> None:
        self.gateway = gateway

    def give(self, region: str) -> None:
        if self.pool:
            split = min(self.pool)
            self.pool.discard(split)
            self.fresh[split] = region
            self.gateway.send(region, str(split).encode())

    def begin_batch(self, checkpoint: int) -> None:
        newest = self.world.newest
        batch = INITIAL if newest is None else newest.batch_id + 1
        for region in sorted(self.world.input.get(batch, ())):
            if self.world.chance(0.3):
                self.give(region)

    def checkpoint(self, checkpoint: int) -> bytes:
        with self.checked():
            self.world.begin(checkpoint)
        self.world.may_crash()
        if self.world.chance(self.world.rates.coordinator):
            self.world.fails_counted()
            raise RuntimeError("boom")
        self.given.update({split: (region, checkpoint) for split, region in self.fresh.items()})
        self.fresh = {}
        self.snapshot = self.encoded()
        return self.snapshot

    def encoded(self) -> bytes:
        return json.dumps([sorted(self.pool), sorted(self.given.items())]).encode()

    def checkpoint_fallback(self, checkpoint: int, origins: Mapping[str, int]) -> bytes:
        with self.checked():
            _, composed, _ = self.world.judged()
            failed = {region: c.origin for region, c in composed.items() if c.failed}
            assert dict(origins) == failed  # R30, R32
        if self.world.chance(self.world.rates.coordinator):
            self.world.fails_counted()
            raise RuntimeError("boom")
        copy = Enumerator(self.world)
        copy.take(self.snapshot)
        for region, origin in origins.items():
            copy.back(region, origin)
        return copy.encoded()

    def reset(self, snapshot: bytes | None) -> None:
        newest = self.world.newest
        with self.checked():  # R33
            assert snapshot == (None if newest is None else newest.coordinators[SOURCE_OPERATOR])
        self.take(snapshot)

    def take(self, snapshot: bytes | None) -> None:
        self.pool, self.given, self.fresh = set(range(SPLITS)), {}, {}
        if snapshot is not None:
            pool, given = json.loads(snapshot)
            self.pool = set(pool)
            self.given = {split: (region, attempt) for split, (region, attempt) in given}

    def region_reset(self, region: str, origin: int) -> None:
        newest = self.world.newest
        with self.checked():  # R33
            assert newest is not None
            assert origin == newest.regions[region].origin
        self.back(region, origin)

    def back(self, region: str, origin: int) -> None:
        back = {s for s, (to, attempt) in self.given.items() if to == region and attempt > origin}
        sent = {split for split, to in self.fresh.items() if to == region}
        self.pool |= back | sent
        for split in back:
            del self.given[split]
        for split in sent:
            del self.fresh[split]

    def checkpoint_complete(self, info: CheckpointInfo) -> None:
        with self.checked():  # R34
            _, regions = self.world.oracle.base()
            assert {region: info.effective(region) for region in regions} == {
                region: content.origin if content.failed else info.checkpoint
                for region, content in regions.items()
            }
            assert info.took_part == {
                region
                for region, content in regions.items()
                if content.origin == info.checkpoint and not (content.failed or content.retired)
            }
        # After the snapshot: the gates of regions that did not take part are still closed.
        for region in self.world.regions[:3]:
            if self.world.chance(0.1):
                self.give(region)

    def checkpoint_aborted(self, checkpoint: int) -> None:
        with self.checked():
            assert checkpoint == self.world.attempt


INITIAL = -1
