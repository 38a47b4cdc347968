"""The plan of an attempt: regions that must answer or restart, and the effect of a decline."""

from __future__ import annotations

import heapq
from collections.abc import Collection, Mapping
from collections.abc import Set as AbstractSet
from itertools import islice

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.quarantine import in_quarantine
from holdfast.regions.coordinator.actions import RunAttempt
from holdfast.regions.coordinator.attempt import PendingAttempt
from holdfast.regions.coordinator.events import Trigger
from holdfast.regions.coordinator.idle import RETIRED_AT_ONCE, IdleTime
from holdfast.regions.coordinator.limits import Limits
from holdfast.regions.coordinator.options import CoordinatorOptions, Topology
from holdfast.regions.coordinator.quarantine import Quarantine
from holdfast.regions.coordinator.regions import Regions


def open_attempt(
    id: int,
    event: Trigger,
    *,
    base: Regions,
    must_run: Collection[str],
    quarantine: Quarantine,
    limits: Limits,
    layout_changed: bool,
    idle: IdleTime | None,
    watermark_idle: IdleTime | None,
    due: frozenset[str],
    options: CoordinatorOptions,
    topology: Topology,
) -> PendingAttempt:
    """Plan an attempt.

    - `base`: regions of the latest completed checkpoint.
    - `must_run`: finished regions that have not learnt of their last commit (R62), and those whose
      state is declared in another form (R78).
    - `layout_changed`: no checkpoint has completed in the pipeline's layout (R14), or with the
      state that its operators declare (R78).
    - `due`: regions with timers that are due.
    """
    end_of_data = event.kind == "final" and event.end_of_data
    fail_fast = event.kind == "savepoint" or not options.may_fall_back  # R8, R23
    must_succeed = event.kind != "checkpoint" or event.global_only or layout_changed  # R14, R25
    retires = event.kind == "checkpoint" and not (layout_changed or limits.force_global)
    since = idle.idle_since if idle is not None and retires else 0
    candidates = (
        (region, entry)
        for region, entry in base.items()
        if idle is not None
        and idle.last_rows(region, entry) <= since
        and not (entry.fallbacks or entry.in_flight_bytes or region in must_run)
        # A region that ended is kept, since later rows are an error unless it may restart (R64).
        and (options.restart_finished or not entry.finished)
    )
    retiring = dict(islice(candidates, RETIRED_AT_ONCE)) if since else {}
    stored = quarantine.resting - frozenset(must_run)
    woken: Mapping[str, int] = {}
    if event.kind == "checkpoint":
        bound = options.bounds.woken_at_once
        woken = _woken(base, due, watermark_idle, bound, without=retiring.keys() | stored)
    asked = base.notable.keys() | base.keys() & must_run | woken.keys()
    may_owe = base if end_of_data else sorted(asked)
    return PendingAttempt(
        id=id,
        pipeline=topology.pipeline,
        trigger=event,
        now_ms=event.now_ms,
        mandatory=must_succeed or limits.force_global,  # R21
        forced=not must_succeed and not fail_fast and limits.force_global,
        fail_fast=fail_fast,
        end_of_data=end_of_data,
        restart=limits.past_bound(base.notable, event.now_ms),
        idle=idle,
        watermark_idle=watermark_idle,
        retiring=retiring,
        woken=woken,
        owed={
            region: entry
            for region in may_owe
            for entry in (base[region],)
            if region not in stored
            and (
                entry.failed
                or entry.in_flight_bytes
                or in_quarantine(entry)
                or region in must_run
                or region in woken
                or (end_of_data and not entry.finished)
            )
        },
        quarantined=stored,
        excused=quarantine.regions - frozenset(must_run),
        last_try=limits.last_try and not layout_changed,
    )


def _woken(
    base: Regions,
    due: Collection[str],
    watermark_idle: IdleTime | None,
    at_once: int,
    *,
    without: AbstractSet[str],
) -> Mapping[str, int]:
    """Return regions that run only because of time, and how far their watermark moves."""
    woken = {
        region: 0 for region in due if region not in without and not base[region].in_flight_bytes
    }
    if watermark_idle is None or not (since := watermark_idle.idle_since):
        return woken
    resting = (
        (entry.origin, region)
        for region, entry in base.items()
        if entry.origin <= since
        and not (entry.finished or entry.in_flight_bytes or region in without)
    )
    for origin, region in heapq.nsmallest(at_once, resting):
        woken[region] = watermark_idle.idle_ms(origin)
    return woken


def run(
    attempt: PendingAttempt,
    latest: CheckpointMetadata | None,
    base: Regions,
    *,
    restart_finished: bool,
) -> RunAttempt:
    """Return the order to run the attempt's batch; `base` has the regions of `latest`."""
    batch_id = attempt.trigger.batch_id
    return RunAttempt(
        attempt=attempt.id,
        batch_id=batch_id,
        kind=attempt.trigger.kind,
        global_required=(attempt.mandatory or attempt.fail_fast) and not attempt.last_try,
        restart=attempt.restart,
        owed=attempt.owed,
        retiring=attempt.retiring,
        woken=attempt.woken,
        quarantined=attempt.quarantined,
        excused=attempt.excused,
        new_rows=latest is None or batch_id > latest.batch_id,
        end_of_data=attempt.end_of_data,
        # Unless it restarts (R64), a finished region never runs again, so its origin is its finish.
        finished={
            region: entry.origin for region, entry in base.finished.items() if not restart_finished
        },
    )
