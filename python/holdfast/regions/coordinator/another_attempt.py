"""The action after an attempt without a checkpoint: another attempt, or the end of the query."""

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

    `base` has the regions of the latest completed checkpoint; `origin` returns the origin of the
    state from which a region continues.
    """
    failed = attempt.failed()
    if rejection.reason is Reason.NOT_DRAINED:
        failed = dict.fromkeys(rejection.regions, rejection.reason.value)
    if rejection.reason is Reason.QUARANTINE:
        return _fail(attempt, str(rejection), min(rejection.regions))
    stale = sorted(failed.keys() & attempt.restart)
    if stale and not options.quarantines:
        region = stale[0]
        error = limits.stale_error(
            region, base.get(region), failed[region], origin(region), attempt.now_ms
        )
        return _fail(attempt, error, region)
    batch_id, kind = attempt.trigger.batch_id, attempt.trigger.kind
    last = f"the last one, {attempt.id} of batch {batch_id}: {rejection}"
    declined = rejection.reason in (Reason.DECLINED, Reason.NOT_DRAINED)
    if kind != "checkpoint" or (attempt.mandatory and declined):
        if rejection.reason is Reason.DECLINED and not attempt.fail_fast:  # R10
            limits.forced_attempt_declined()
        if not attempt.forced and not limits.must_be_repeated(attempt.now_ms):
            # No region can be left out if its rows met others in a batch.
            may_quarantine = options.quarantines and kind != "checkpoint"
            if attempt.last_try or not (may_quarantine and rejection.reason is Reason.DECLINED):
                return _give_up(attempt, last, limits, options)
            limits.last_try = True  # R27
    elif limits.aborted():
        tolerable, aborts = options.tolerable_failed_checkpoints, limits.aborts
        many = f"{aborts} checkpoint attempts in a row were aborted"
        return _fail(
            attempt,
            f"{many if aborts > 1 else 'a checkpoint attempt was aborted'}, "
            f"tolerable_failed_checkpoints={tolerable}; {last}",
        )
    pause_ms = limits.pause_ms(attempt.now_ms)
    return Retry(batch_id=batch_id, kind=kind, reason=str(rejection), pause_ms=pause_ms)


def _give_up(
    attempt: PendingAttempt, last: str, limits: Limits, options: CoordinatorOptions
) -> GiveUp | FailQuery:
    """End the attempts at a checkpoint that must succeed, and has not for too long (R25)."""
    attempts, limits.repeated, limits.last_try = limits.repeated, 0, False
    if attempt.trigger.optional:
        return GiveUp(attempts=attempts)
    return _fail(
        attempt,
        f"{attempts} checkpoint attempts that need every region were aborted in "
        f"{options.global_timeout_ms / 1000:g} s (global_timeout); {last}",
    )


def _fail(attempt: PendingAttempt, error: str, region: str | None = None) -> FailQuery:
    """End the query; the error begins and ends with the exception of the region to blame."""
    blamed = region if region is not None else min(attempt.failed(), default="")
    answer = attempt.regions.get(blamed)
    if answer is None or (problem := answer.problem) is None:
        return FailQuery(error=error)
    headline = problem.headline(blamed, attempt.id)
    # Logs show the beginning of a message, and terminals its end.
    why = error.removesuffix(f"; {blamed!r}: {problem.text}")
    error = f"{headline}\n{why}: {headline.splitlines()[0]}"
    return FailQuery(error=error, headline=headline, problem=problem)
