"""Evaluates an attempt and composes its checkpoint: pure functions (B)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from enum import Enum

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.regions.base.quarantine import in_quarantine, quarantined
from holdfast.regions.coordinator import event_record
from holdfast.regions.coordinator.attempt import PendingAttempt
from holdfast.regions.coordinator.idle import WATERMARK_PROPERTY, is_retired
from holdfast.regions.coordinator.limits import Limits
from holdfast.regions.coordinator.options import CoordinatorOptions, Topology
from holdfast.regions.coordinator.regions import Regions


class Reason(Enum):
    """Why an attempt was aborted."""

    DECLINED = "a region declined, and the attempt had to be global"
    ONE_REGION = "the only region failed"
    TOO_MANY = "too many regions failed"
    MISTAKE = "every region with rows failed in the same way"
    NO_BASE = "a region failed before any checkpoint was complete"
    TASKS = "tasks were lost"
    NOT_STORED = "the rows of a failed region could not be stored"
    MUST_ACK = "a finished region failed before its last commit was delivered"
    NO_FALLBACK = "the coordinator of an operator does not support fallback"
    PARTLY_FINISHED = "only some regions of an operator with union state have finished"
    NOT_DRAINED = "regions still have in-flight data"
    COORDINATOR = "the coordinator of an operator failed"
    QUARANTINE = "regions in quarantine owe more than max_quarantined_bytes"
    STALE = "a region failed again after its restart"
    PUBLICATION = "the checkpoint could not be published"


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """Why an attempt is aborted: names, counts and causes, and the regions to blame."""

    reason: Reason
    detail: str
    regions: frozenset[str] = frozenset()

    def __str__(self) -> str:
        return f"{self.reason.value}: {self.detail}"


def names(regions: Collection[str]) -> str:
    """List the first three regions, for a message."""
    first = ", ".join(map(repr, sorted(regions)[:3]))
    return f"{first} and {len(regions) - 3} more" if len(regions) > 3 else first


def reject(
    attempt: PendingAttempt,
    *,
    base: Regions | None,
    must_ack: Collection[str],
    options: CoordinatorOptions,
    topology: Topology,
) -> Rejection | None:
    """Evaluate frozen answers in the order of the semantics; None if the attempt may complete.

    - `base`: regions of the latest completed checkpoint, if any. An unknown region has the empty
      state in it (R26).
    - `must_ack`: finished regions that have not learnt of their last commit (R62).
    """
    answers = attempt.regions
    unsaved = {
        region: cause
        for region, cause in attempt.failed().items()
        if answers[region].unsaved and not answers[region].in_flight
    }
    failed = attempt.counted()
    if not failed:
        return _not_stored(unsaved)
    to_blame = frozenset(failed)

    def because(reason: Reason, detail: str, regions: Collection[str] = to_blame) -> Rejection:
        return Rejection(reason=reason, detail=detail, regions=frozenset(regions))

    first = min(failed)
    causes = f"{names(failed)}; {first!r}: {failed[first]}"
    if (attempt.mandatory or attempt.fail_fast) and not attempt.last_try:  # R10, R14, R25
        return because(Reason.DECLINED, causes)
    if len(base or ()) + sum(region not in (base or ()) for region in answers) <= 1:  # R11
        return because(Reason.ONE_REGION, causes)
    # Regions that were not asked have no rows and cannot fail (R12).
    active = len(answers.keys() - attempt.excused)
    failures = attempt.failures()
    allowed = options.failures_allowed(active)
    if len(failed) == active > 1 and _made_one_mistake(attempt):
        return because(Reason.MISTAKE, f"{len(failed)} of {active}: {causes}")
    if failures > allowed or len(failed) == active > 1:
        at_once = "" if failures == len(failed) else f" by {failures} failures"
        return because(
            Reason.TOO_MANY, f"{len(failed)} of {active}{at_once}, {allowed} are allowed: {causes}"
        )
    if base is None:  # R13
        return because(Reason.NO_BASE, causes)
    if lost := _not_stored(unsaved):
        return lost
    if finished := [region for region in failed if region in must_ack]:  # R62
        return because(Reason.MUST_ACK, f"{names(finished)}: {failed[finished[0]]}", finished)
    unable = [operator for operator, able in topology.coordinators.items() if not able]
    if unable:  # R15
        return because(Reason.NO_FALLBACK, f"{', '.join(unable)}; failed: {causes}")
    return None


def _not_stored(unsaved: Mapping[str, str]) -> Rejection | None:
    if not unsaved:
        return None
    detail = f"{names(unsaved)}; {(first := next(iter(unsaved)))!r}: {unsaved[first]}"
    return Rejection(reason=Reason.NOT_STORED, detail=detail, regions=frozenset(unsaved))


def _made_one_mistake(attempt: PendingAttempt) -> bool:
    """Return whether the same place of the program raised the same exception in all regions."""
    problems = [attempt.regions[region].problem for region in attempt.counted()]
    kinds = {problem and problem.kind for problem in problems}
    return len(kinds) == 1 and None not in kinds


def compose(
    attempt: PendingAttempt,
    *,
    base: Regions,
    base_id: int,
    options: CoordinatorOptions,
) -> Regions:
    """Return the regions of the checkpoint: acknowledged, fallen back, or idle (R16).

    A failed region falls back as a whole to its entry in the latest checkpoint, with the origin
    there: no region ever mixes two origins. A stuck region goes into quarantine (R27). A retired
    one is in the checkpoint only with the rows that it put out (R66).
    """
    answers, failed = attempt.regions, attempt.failed()
    composed = base.copy()
    for region, answer in answers.items():
        if region in failed:
            before = base.get(region) or RegionEntry(region, origin=base_id)
            fallen = before.fell_back(failed[region], attempt.now_ms, answer.in_flight)
            stuck = _is_stuck(fallen, attempt, options)
            composed[region] = quarantined(fallen) if stuck else fallen
        elif (entry := answer.acked) is not None:
            composed[region] = entry
            if region in attempt.retiring and is_retired(entry) and not entry.staged:
                del composed[region]
    return composed


def _is_stuck(fallen: RegionEntry, attempt: PendingAttempt, options: CoordinatorOptions) -> bool:
    """Return whether a region that fell back is in quarantine from this checkpoint on (R27)."""
    if not options.quarantines or options.quarantine_after is None:
        return False
    return (
        fallen.fallbacks >= options.quarantine_after
        or fallen.region in attempt.restart | attempt.excused
        or attempt.last_try
    )


def overfull(attempt: PendingAttempt, options: CoordinatorOptions) -> Rejection | None:
    """Evaluate the pending rows of all regions in quarantine together (R28)."""
    if not options.quarantines:
        return None
    composed = attempt.composed
    owed = {
        region: composed[region].in_flight_bytes
        for region in attempt.quarantined | attempt.regions.keys()
        if region in composed and in_quarantine(composed[region])
    }
    if sum(owed.values()) <= options.max_quarantined_bytes:
        return None
    most = max(owed, key=lambda region: (owed[region], region))
    return Rejection(
        reason=Reason.QUARANTINE,
        detail=(
            f"{sum(owed.values())} bytes, and {options.max_quarantined_bytes} are allowed: "
            f"{names(owed)}; {most!r} owes {owed[most]}: {composed[most].cause}"
        ),
        regions=frozenset((most,)),
    )


def incomplete(attempt: PendingAttempt, base: Regions) -> Rejection | None:
    """Evaluate the composed regions: not everything can wait for a later checkpoint (R25, R63)."""
    composed = attempt.composed
    if attempt.trigger.kind != "checkpoint":
        left = frozenset(
            region
            for region, entry in composed.notable.items()
            if entry.failed or (entry.in_flight_bytes and not in_quarantine(entry))
        )
        if left:
            return Rejection(reason=Reason.NOT_DRAINED, detail=names(left), regions=left)
    # A checkpoint that is partly finished already has no union state.
    new = composed.changed if base.partly_finished else composed
    if composed.partly_finished and (union := _with_union_state(new)):
        return Rejection(
            reason=Reason.PARTLY_FINISHED,
            detail=f"{', '.join(sorted(union))}; running: {names(composed.running)}",
        )
    return None


def evaluate(
    attempt: PendingAttempt,
    *,
    base: Regions | None,
    base_id: int,
    must_ack: Collection[str],
    options: CoordinatorOptions,
    topology: Topology,
) -> Rejection | None:
    """Evaluate frozen answers, and compose the attempt's checkpoint; see `reject`, `compose`."""
    if attempt.failed():
        attempt.retire_none()  # R66
    rejection = reject(attempt, base=base, must_ack=must_ack, options=options, topology=topology)
    if rejection is not None:
        return rejection
    stale = attempt.failed().keys() & attempt.restart
    if stale and not options.quarantines:  # R22
        return Rejection(reason=Reason.STALE, detail=names(stale))
    before = Regions() if base is None else base
    attempt.composed = compose(attempt, base=before, base_id=base_id, options=options)
    return incomplete(attempt, before) or overfull(attempt, options)


def metadata_of(
    attempt: PendingAttempt,
    latest: CheckpointMetadata | None,
    limits: Limits,
    topology: Topology,
) -> CheckpointMetadata:
    """Return the metadata of the checkpoint that an attempt has composed, after the latest one."""
    entries = attempt.composed
    regional = any(entries[region].failed for region in attempt.failed())
    consecutive, force_global = limits.after(regional=regional)
    all_finished = bool(entries) and len(entries.finished) == len(entries)
    records = {
        event_record.record_name(o): event_record.encode(attempt.events(o))
        for o in attempt.snapshots
    }
    idle: dict[str, str] = {}
    if attempt.idle is not None:
        idle |= replace(attempt.idle, rested=attempt.rested()).record(attempt.id)
    if attempt.watermark_idle is not None:
        idle |= attempt.watermark_idle.record(attempt.id, WATERMARK_PROPERTY)
    return CheckpointMetadata(
        attempt.id,
        attempt.trigger.batch_id,
        attempt.trigger.kind,
        attempt.now_ms,
        topology.fingerprint,
        entries.changed,
        coordinators={
            **attempt.snapshots,
            **{name: data for name, data in records.items() if data},
        },
        consecutive_regional=consecutive,
        force_global=force_global,
        finished_operators=topology.operators if all_finished else (),
        properties={**attempt.trigger.properties, **idle},
        base=latest,
        gone=sorted(entries.gone),
    )


def _with_union_state(composed: Mapping[str, RegionEntry]) -> set[str]:
    """Return the operators (instances) that have union state in some region."""
    return {
        operator.name
        for entry in composed.values()
        for operator in entry.operators
        if any(state.kind == "union" for state in operator.states)
    }
