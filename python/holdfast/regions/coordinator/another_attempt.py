"""What follows an attempt without a checkpoint: another one, or the end of the query."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from holdfast._core import RegionEntry
from holdfast.regions.coordinator.actions import FailQuery, GiveUp, Retry
from holdfast.regions.coordinator.attempt import PendingAttempt
from holdfast.regions.coordinator.evaluation import Reason, Rejection
from holdfast.regions.coordinator.limits import Limits
from holdfast.regions.coordinator.options import CoordinatorOptions


def choose(
    attempt: PendingAttempt,
    rejection: Rejection,
    *,
    base: Mapping[str, RegionEntry],
    origin: Callable[[str], int],
    limits: Limits,
    options: CoordinatorOptions,
) -> Retry | GiveUp | FailQuery:
    """Choose between another attempt and the end of the query (R21, R22, R24).

    Parameters
    ----------
    attempt : PendingAttempt
        The one that was aborted.
    rejection : Rejection
        Why.
    base : mapping of str to RegionEntry
        Regions of the latest completed checkpoint.
    origin : callable
        Returns the origin of the state that a region goes on from.
    limits : Limits
        Counts the abort.
    options : CoordinatorOptions
        Bounds.
    """
    failed = attempt.failed()
    if rejection.reason is Reason.NOT_DRAINED:
        failed = dict.fromkeys(rejection.regions, rejection.reason.value)
    if stale := sorted(failed.keys() & attempt.restart):
        region = stale[0]
        error = limits.stale_error(
            region, base.get(region), failed[region], origin(region), attempt.now_ms
        )
        return _fail(attempt, error, region)
    last = f"the last one, {attempt.id} of batch {attempt.batch_id}: {rejection}"
    declined = rejection.reason in (Reason.DECLINED, Reason.NOT_DRAINED)
    if attempt.kind != "checkpoint" or (attempt.mandatory and declined):
        if rejection.reason is Reason.DECLINED and not attempt.fail_fast:  # R10
            limits.forced_attempt_declined()
        if not attempt.forced and not limits.must_be_repeated(attempt.now_ms):
            return _give_up(attempt, last, limits, options)
    elif limits.aborted():
        tolerable, aborts = options.tolerable_failed_checkpoints, limits.aborts
        many = f"{aborts} checkpoint attempts in a row were aborted"
        return _fail(
            attempt,
            f"{many if aborts > 1 else 'a checkpoint attempt was aborted'}, "
            f"tolerable_failed_checkpoints={tolerable}; {last}",
        )
    return Retry(
        batch_id=attempt.batch_id,
        kind=attempt.kind,
        reason=str(rejection),
        pause_ms=limits.pause_ms(attempt.now_ms),
    )


def _give_up(
    attempt: PendingAttempt, last: str, limits: Limits, options: CoordinatorOptions
) -> GiveUp | FailQuery:
    """End what must succeed, and has not for too long (R25)."""
    attempts = 0 if limits.repeated is None else limits.repeated.attempts
    limits.give_up()
    if attempt.optional:
        return GiveUp(attempts=attempts)
    return _fail(
        attempt,
        f"{attempts} checkpoint attempts that need every region were aborted in "
        f"{options.global_timeout_ms / 1000:g} s (global_timeout); {last}",
    )


def _fail(attempt: PendingAttempt, error: str, region: str | None = None) -> FailQuery:
    """End the query; begin with what the region to blame has raised."""
    blamed = region if region is not None else min(attempt.failed(), default="")
    problem = attempt.problem_of(blamed)
    if problem is not None:
        error = f"{problem.headline(blamed, attempt.id)}\n{error}"
    return FailQuery(error=error, problem=problem)
