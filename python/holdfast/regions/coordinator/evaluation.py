"""Evaluates an attempt and composes its checkpoint: pure functions (B)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import Enum

from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.regions.coordinator import event_record
from holdfast.regions.coordinator.attempt import PendingAttempt
from holdfast.regions.coordinator.idle import is_retired
from holdfast.regions.coordinator.limits import Limits
from holdfast.regions.coordinator.options import CoordinatorOptions, Topology


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
    STALE = "a region failed again after its restart"
    PUBLICATION = "the checkpoint could not be published"


@dataclass(frozen=True, kw_only=True)
class Rejection:
    """Why an attempt is aborted.

    Attributes
    ----------
    detail : str
        Names, counts and causes.
    regions : frozenset of str
        The regions that are to blame.
    """

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
    base: Mapping[str, RegionEntry] | None,
    must_ack: Collection[str],
    options: CoordinatorOptions,
    topology: Topology,
) -> Rejection | None:
    """Evaluate frozen answers in the order of the semantics; None if the attempt may complete.

    Parameters
    ----------
    base : mapping of str to RegionEntry or None
        Regions of the latest completed checkpoint; None if there is none. A region that it does
        not know has the empty state in it (R26).
    must_ack : collection of str
        Finished regions that have not heard of their last commit (R62).
    """
    failed = attempt.failed()
    if not failed:
        return None
    to_blame = frozenset(failed)

    def because(reason: Reason, detail: str, regions: Collection[str] = to_blame) -> Rejection:
        return Rejection(reason=reason, detail=detail, regions=frozenset(regions))

    first = min(failed)
    causes = f"{names(failed)}; {first!r}: {failed[first]}"
    if attempt.mandatory or attempt.fail_fast:  # R10, R14, R25
        return because(Reason.DECLINED, causes)
    regions = len(base.keys() | attempt.regions.keys() if base else attempt.regions)
    if regions <= 1:  # R11
        return because(Reason.ONE_REGION, causes)
    # Regions that were not asked have no rows and cannot fail (R12).
    active, failures = len(attempt.regions), attempt.failures()
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
    answers = attempt.regions
    if lost := [name for name in failed if answers[name].unsaved and not answers[name].in_flight]:
        return because(Reason.NOT_STORED, f"{names(lost)}; {lost[0]!r}: {failed[lost[0]]}", lost)
    if finished := [region for region in failed if region in must_ack]:  # R62
        return because(Reason.MUST_ACK, f"{names(finished)}: {failed[finished[0]]}", finished)
    unable = [operator for operator, able in topology.coordinators.items() if not able]
    if unable:  # R15
        return because(Reason.NO_FALLBACK, f"{', '.join(unable)}; failed: {causes}")
    return None


def _made_one_mistake(attempt: PendingAttempt) -> bool:
    """Return whether the same place of the program raised the same exception in all regions."""
    kinds = {answer.problem and answer.problem.kind for answer in attempt.regions.values()}
    return len(kinds) == 1 and None not in kinds


def compose(
    attempt: PendingAttempt, *, base: Mapping[str, RegionEntry], base_id: int
) -> dict[str, RegionEntry]:
    """Return the regions of the checkpoint: acknowledged, fallen back, or idle (R16).

    A failed region falls back as a whole to its entry in the latest checkpoint, with the origin
    there: no region ever mixes two origins. A region that is retired is in the checkpoint only with
    the rows that it put out (R66).
    """
    answers, failed = attempt.regions, attempt.failed()
    composed = {region: entry.carried() for region, entry in base.items() if region not in answers}
    for region, answer in answers.items():
        if region in failed:
            before = base.get(region) or RegionEntry(region, origin=base_id)
            composed[region] = before.fell_back(failed[region], attempt.now_ms, answer.in_flight)
        elif (entry := answer.acked) is not None:
            if region in attempt.retiring and is_retired(entry) and not entry.staged:
                continue
            composed[region] = entry
    return composed


def incomplete(attempt: PendingAttempt) -> Rejection | None:
    """Evaluate the composed regions: some things cannot wait for a later checkpoint (R25, R63)."""
    composed = attempt.composed
    if attempt.trigger.kind != "checkpoint":
        left = frozenset(
            region for region, entry in composed.items() if entry.failed or entry.in_flight_bytes
        )
        if left:
            return Rejection(reason=Reason.NOT_DRAINED, detail=names(left), regions=left)
    running = {region for region, entry in composed.items() if not entry.finished}
    if running and len(running) < len(composed) and (union := _with_union_state(composed)):
        return Rejection(
            reason=Reason.PARTLY_FINISHED,
            detail=f"{', '.join(sorted(union))}; running: {names(running)}",
        )
    return None


def evaluate(
    attempt: PendingAttempt,
    *,
    base: Mapping[str, RegionEntry] | None,
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
    if stale := attempt.failed().keys() & attempt.restart:  # R22
        return Rejection(reason=Reason.STALE, detail=names(stale))
    attempt.composed = compose(attempt, base=base or {}, base_id=base_id)
    return incomplete(attempt)


def metadata_of(attempt: PendingAttempt, limits: Limits, topology: Topology) -> CheckpointMetadata:
    """Return the metadata of the checkpoint that an attempt has composed."""
    entries = attempt.composed
    consecutive, force_global = limits.after(regional=bool(attempt.failed()))
    all_finished = bool(entries) and all(entry.finished for entry in entries.values())
    records = {
        event_record.record_name(o): event_record.encode(attempt.events(o))
        for o in attempt.snapshots
    }
    idle = {} if attempt.idle is None else attempt.idle.record(attempt.id)
    return CheckpointMetadata(
        attempt.id,
        attempt.trigger.batch_id,
        attempt.trigger.kind,
        attempt.now_ms,
        topology.fingerprint,
        entries,
        coordinators={
            **attempt.snapshots,
            **{name: data for name, data in records.items() if data},
        },
        consecutive_regional=consecutive,
        force_global=force_global,
        finished_operators=topology.operators if all_finished else (),
        properties={**attempt.trigger.properties, **idle},
    )


def _with_union_state(composed: Mapping[str, RegionEntry]) -> set[str]:
    """Return the operators (instances) that have union state in some region."""
    return {
        operator.name
        for entry in composed.values()
        for operator in entry.operators
        if any(state.kind == "union" for state in operator.states)
    }
