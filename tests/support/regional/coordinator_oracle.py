"""A second opinion on every attempt: it keeps the whole log, and derives everything from it.

It shares no code with the coordinator, and keeps nothing else that could be forgotten.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from decimal import Decimal
from itertools import pairwise
from typing import Any

from holdfast.regions.coordinator import CoordinatorOptions, idle


@dataclass
class Told:
    """One attempt as the coordinator was told of it.

    Attributes
    ----------
    owed
        Regions that have to answer.
    asked
        Regions that a task was given, or that answered.
    lost
        Regions that a lost task had, and which one.
    events
        (kind, region, content) until the freeze: the kind is start, ack or decline; the content is
        the acknowledged state, or the rows of a decline and whether it had rows.
    tasks_failed
        Tasks were lost, so that it is not known which regions had rows in them.
    stored
        Regions in quarantine that only store their rows.
    excused
        These, and regions that leave quarantine.
    last_try
        It need not be global any more: regions that fail go into quarantine.
    """

    id: int
    batch_id: int
    kind: str
    trigger_ms: int
    owed: set[str]
    asked: set[str] = field(default_factory=set)
    lost: dict[str, str] = field(default_factory=dict)
    events: list[tuple[str, str, Any]] = field(default_factory=list)
    tasks_failed: bool = False
    stored: set[str] = field(default_factory=set)
    excused: set[str] = field(default_factory=set)
    last_try: bool = False


@dataclass
class Content:
    """A region in a checkpoint: the tokens in its state, and its stored rows.

    `held`: it is in quarantine. `count`: its fallbacks since its state was taken.
    """

    origin: int
    state: Any
    in_flight: list[Any]
    failed: bool
    retired: bool = False
    held: bool = False
    count: int = 0


#: Content that a region acknowledges when it is retired.
RETIRED: Any = "retired"


@dataclass
class Oracle:
    """The log of decisions.

    ("published", id, {region: Content}, ms, trigger_ms), ("crash",) and ("aborted", why, regions,
    ms, kind).
    """

    options: CoordinatorOptions
    log: list[tuple[Any, ...]] = field(default_factory=list)

    # --- the content of the log -------------------------------------------------------------------

    def published(self) -> list[tuple[int, dict[str, Content], int]]:
        return [(entry[1], entry[2], entry[3]) for entry in self.log if entry[0] == "published"]

    def base(self) -> tuple[int, dict[str, Content]]:
        id, regions, _ = self.published()[-1]
        return id, regions

    def consecutive(self) -> tuple[int, bool]:
        """Count regional checkpoints in a row; a crash forgets everything outside of metadata."""
        now = recorded = (0, False)
        for entry in self.log:
            if entry[0] == "published":
                partial = any(content.failed for content in entry[2].values())
                count = now[0] + 1 if partial else 0
                now = recorded = (
                    count,
                    partial and count >= self.options.max_consecutive_failures,
                )
            elif entry[:2] == ("aborted", "forced"):
                now = (0, False)
            elif entry[0] == "crash":
                now = recorded
        return now

    def fallbacks(self, region: str) -> tuple[int, int | None]:
        """Return a region's fallbacks in a row, and the time of the first."""
        count, since = 0, None
        for _, regions, at_ms in reversed(self.published()):
            if region not in regions or not regions[region].failed:
                break
            count, since = count + 1, at_ms
        return count, since

    def repeated_since(self) -> int | None:
        """Return the first failure of an attempt that must succeed since a checkpoint or crash."""
        first = None
        for entry in self.log:
            if entry[0] in ("published", "crash"):
                first = None
            elif entry[4] != "checkpoint" and first is None:
                first = entry[3]
        return first

    def pause_ms(self, now_ms: int) -> int:
        """Return the pause after an abort, which is the last entry of the log (R24)."""
        pause = 50
        for entry in self.log:
            partial = entry[0] == "published" and any(c.failed for c in entry[2].values())
            if entry[0] == "aborted":
                pause *= 2
            elif not partial:
                pause = 50
        pause = min(pause, 10_000)
        since = self.repeated_since()
        if since is None:
            return pause
        return max(100, min(pause, since + self.options.global_timeout_ms - now_ms))

    def counted_aborts(self) -> int:
        count = 0
        for entry in self.log:
            if entry[0] in ("published", "crash"):
                count = 0
            elif entry[:2] == ("aborted", "counted"):
                count += 1
        return count

    # --- conclusions ------------------------------------------------------------------------------

    def must_restart(self, now_ms: int) -> set[str]:
        bound = self.options.max_region_staleness
        names = {region for entry in self.log if entry[0] == "published" for region in entry[2]}
        found = set()
        for region in names:
            count, since = self.fallbacks(region)
            if count >= bound.checkpoints:
                found.add(region)
            if since is not None and now_ms - since >= bound.age_ms:
                found.add(region)
        return found

    def quarantines(self) -> bool:
        return self.options.quarantine_after is not None and not self.first_decline_aborts()

    def held(self) -> set[str]:
        """Return the regions in quarantine."""
        published = self.published()
        return {r for r, c in published[-1][1].items() if c.held} if published else set()

    def last_try(self) -> bool:
        """Return whether regions that fail again are set aside after repeated attempts (R27)."""
        since = self.repeated_since()
        if since is None or not self.quarantines() or self.log[-1][:2] != ("aborted", "forced"):
            return False
        _, _, _, at_ms, kind = self.log[-1]
        return bool(kind != "checkpoint" and at_ms - since >= self.options.global_timeout_ms)

    def must_be_global(self, kind: str) -> bool:
        return kind != "checkpoint" or self.consecutive()[1]

    def idle_ms(self, trigger_ms: int) -> dict[str, int]:
        """Return the counted time for which regions took no part (R66)."""
        log = [entry for entry in self.log if entry[0] == "published"]
        longest = -(-(self.options.retire_idle_ms or 0) // idle.LEAST_CHECKPOINTS)
        times, counted = {log[0][1]: 0}, 0
        for before, entry in pairwise(log):
            counted += min(max(entry[4] - before[3], 0), longest)
            times[entry[1]] = counted
        counted += min(max(trigger_ms - log[-1][3], 0), longest)
        return {region: counted - times[c.origin] for region, c in log[-1][2].items()}

    def may_retire(self, told: Told) -> tuple[set[str], set[str]]:
        """Return the regions that an attempt may retire, and the ones that it has to."""
        least = self.options.retire_idle_ms
        if least is None or self.must_be_global(told.kind) or self.failed(told):
            return set(), set()
        known = {
            region: ms
            for region, ms in self.idle_ms(told.trigger_ms).items()
            if region not in self.involved(told) and self.at_rest(region)
        }
        latest = least + 2 * -(-least // idle.LEAST_CHECKPOINTS)
        may = {region for region, ms in known.items() if ms >= least}
        return may, {region for region in may if known[region] >= latest}

    def at_rest(self, region: str) -> bool:
        """True if a region has state, and no pending rows."""
        content = self.base()[1][region]
        return not (content.count or content.in_flight or content.retired)

    def first_decline_aborts(self) -> bool:
        return self.options.max_consecutive_failures == 0

    def failed(self, told: Told) -> set[str]:
        return {region for region in self.involved(told) if self._failed(told, region)}

    def involved(self, told: Told) -> set[str]:
        return {event[1] for event in told.events} | told.owed

    def _failed(self, told: Told, region: str) -> bool:
        return self.first_answer(told, region) != "ack"

    def first_answer(self, told: Told, region: str) -> str | None:
        return next((e[0] for e in told.events if e[1] == region and e[0] != "start"), None)

    def _stored(self, told: Told, region: str) -> tuple[list[Any], bool]:
        """Return the stored rows of a failed region, and whether some may be missing."""
        declines = [e[2] for e in told.events if e[0] == "decline" and e[1] == region]
        for stored, _ in declines:
            if stored:
                return list(stored), False
        return [], not declines or any(had_rows for _, had_rows in declines)

    def retained(self) -> list[int]:
        return [id for id, _, _ in self.published()][-self.options.num_retained :]

    def judge(self, told: Told) -> tuple[str, dict[str, Content], set[str]]:
        """Return "published" and the checkpoint's content, or the reason and regions to blame."""
        base_id, regions = self.base()
        base = {region: content for region, content in regions.items() if not content.retired}
        failed = self.failed(told)
        involved = self.involved(told)
        if failed:  # R66: retiring takes a global checkpoint.
            involved -= {event[1] for event in told.events if event[2] is RETIRED} - failed
        aborted = "counted" if told.kind == "checkpoint" else "mandatory"
        if told.tasks_failed:
            return aborted, {}, failed
        # R27: regions in quarantine, or leaving it, cannot end an attempt.
        counted, active = failed - told.excused, involved - told.excused
        if counted:
            must = self.must_be_global(told.kind) or self.first_decline_aborts()
            if must and not told.last_try:
                return self.kind_of_abort(told), {}, counted
            if len(base.keys() | involved) == 1:
                return aborted, {}, counted
            # R12: idle regions could not fail, and a lost task is one failure.
            share = int(Decimal(str(self.options.max_failure_ratio)) * len(active))
            alone = counted - told.lost.keys()
            failures = len(alone) + len({told.lost[region] for region in counted - alone})
            if len(active) > 1 and counted == active:
                return aborted, {}, counted
            if failures > max(1, share):
                return aborted, {}, counted
        if any(self._stored(told, region)[1] for region in failed):
            return aborted, {}, failed
        restart = self.must_restart(told.trigger_ms)
        if failed & restart and not self.quarantines():
            return "counted", {}, failed
        composed = {}
        for region in base.keys() | involved:
            before = base.get(region, Content(base_id, ((), ()), [], False))
            acked = next((e[2] for e in told.events if e[0] == "ack" and e[1] == region), None)
            if region in failed:
                stored, _ = self._stored(told, region)
                kept = [*before.in_flight, *stored]
                count = before.count + 1
                stuck = self.quarantines() and (
                    count >= (self.options.quarantine_after or 0)
                    or region in restart | told.excused
                    or told.last_try
                )
                composed[region] = Content(
                    before.origin, before.state, kept, not stuck, held=stuck, count=count
                )
            elif region in told.stored & involved:
                assert acked is not None
                composed[region] = replace(before, in_flight=list(acked[1]))
            elif region in involved:
                assert acked is not None
                if acked is RETIRED:
                    composed[region] = Content(told.id, ((), ()), [], False, retired=True)
                    continue
                composed[region] = Content(told.id, acked[0], list(acked[1]), False)
            else:
                composed[region] = replace(before, failed=False)
        left = {r for r, content in composed.items() if content.in_flight and not content.held}
        if told.kind != "checkpoint" and left:
            return "mandatory", {}, left
        held = {r: content for r, content in composed.items() if content.held}
        if self.quarantines() and self._bytes(held.values()) > self.options.max_quarantined_bytes:
            return "overfull", {}, set(held)  # R28
        return "published", composed, set()

    @staticmethod
    def _bytes(contents: Iterable[Content]) -> int:
        """Return the pending bytes of these regions: each piece is a JSON list of its batches."""
        return sum(len(json.dumps(piece)) for one in contents for piece in one.in_flight)

    def kind_of_abort(self, told: Told) -> str:
        if not self.must_be_global(told.kind):
            return "counted"
        return "mandatory" if self.first_decline_aborts() else "forced"
