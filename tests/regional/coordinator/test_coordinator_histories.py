"""Random histories of a pipeline's driver, held against an oracle that keeps everything.

Whatever fails, is repeated, comes late or never: rules R12, R16, R20 to R29, R30 to R34 and R70,
and every row of every region in every checkpoint exactly once.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, note, settings
from hypothesis import strategies as st

from holdfast import SnapshotManager
from holdfast.regions.coordinator import CoordinatorOptions, Staleness, idle
from holdfast.regions.coordinator.options import Bounds
from holdfast.regions.files.folders import CheckpointFolders
from support.regional.coordinator_world import Rates, World, memory_folder, names

RATE = st.sampled_from([0.0, 0.0, 0.03, 0.1, 0.3])
RARELY = st.sampled_from([0.0, 0.0, 0.01, 0.05])

OPTIONS = st.builds(
    CoordinatorOptions,
    max_failure_ratio=st.sampled_from([0.1, 0.29, 0.3, 0.5, 0.9, 1.0]),
    max_consecutive_failures=st.sampled_from([0, 1, 2, 2, 3, 100]),
    max_region_staleness=st.builds(
        Staleness,
        checkpoints=st.sampled_from([1, 2, 3, 10]),
        age_ms=st.sampled_from([60, 200, 10**9]),
    ),
    quarantine_after=st.sampled_from([None, None, 1, 2, 3]),
    max_quarantined_bytes=st.sampled_from([1 << 30, 1 << 30, 40]),
    num_retained=st.integers(1, 4),
    dropped_together=st.sampled_from([1, 1, 2, 4]),
    tolerable_failed_checkpoints=st.sampled_from([0, 1, 3, 50, 50, 50]),
    global_timeout_ms=st.sampled_from([0, 150, 3_000, 10**9]),
    retire_idle_ms=st.sampled_from([None, None, 1, 80, 200, 400]),
)
RATES = st.builds(
    Rates,
    crash=RARELY,
    decline=RATE,
    silence=RATE,
    unsaved=RATE,
    repeat=RATE,
    coordinator=RARELY,
    publish=RARELY,
    undeleted=RATE,
    lost_message=RATE,
    drain=RARELY,
    unaligned=RATE,
    lost_task=RATE,
    together=st.sampled_from([0.0, 0.3, 0.9]),
)


@pytest.fixture(autouse=True)
def few_checkpoints(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let regions retire in short histories."""
    monkeypatch.setattr(idle, "LEAST_CHECKPOINTS", 2)


QUICK = settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LONG = settings(QUICK, max_examples=10_000)


def every_rule_holds(
    count: int,
    batches: int,
    options: CoordinatorOptions,
    rates: Rates,
    seed: int,
    with_source: bool,
    on_retire: bool,
) -> None:
    with memory_folder() as folder:
        world = World(
            regions=list(names(count)),
            batches=batches,
            options=options,
            rates=rates,
            seed=seed,
            folder=folder,
            with_source=with_source,
            on_retire=on_retire,
        )
        world.run()
    note(f"{len(world.oracle.log)} log entries, {world.failed_query}")


HISTORIES: dict[str, Any] = {
    "count": st.one_of(st.integers(1, 6), st.integers(1, 50)),
    "batches": st.integers(1, 12),
    "options": OPTIONS,
    "rates": RATES,
    "seed": st.integers(0, 2**32),
    "with_source": st.booleans(),
    "on_retire": st.booleans(),
}


#: Of checkpoints that go at once some are refused, and not all are tried again one by one.
PARTLY_DROPPED: dict[str, Any] = {
    "count": 11,
    "batches": 6,
    "options": CoordinatorOptions(
        max_failure_ratio=0.1,
        max_consecutive_failures=0,
        max_region_staleness=Staleness(checkpoints=1, age_ms=60),
        num_retained=1,
        dropped_together=4,
        tolerable_failed_checkpoints=50,
        global_timeout_ms=150,
    ),
    "rates": Rates(
        crash=0.01,
        decline=0.03,
        silence=0.3,
        repeat=0.3,
        undeleted=0.3,
        drain=0.05,
        unaligned=0.3,
        lost_task=0.3,
    ),
    "seed": 11,
    "with_source": True,
    "on_retire": True,
}


#: A region is lost with a task, and its decline comes again while regions without rows are asked.
DECLINED_AGAIN: dict[str, Any] = {
    "count": 30,
    "batches": 10,
    "options": CoordinatorOptions(
        max_failure_ratio=0.1,
        max_consecutive_failures=1,
        max_region_staleness=Staleness(checkpoints=1, age_ms=60),
        num_retained=1,
        dropped_together=4,
        tolerable_failed_checkpoints=0,
        global_timeout_ms=0,
        retire_idle_ms=80,
    ),
    "rates": Rates(repeat=0.03, unaligned=0.3, lost_task=0.03),
    "seed": 8525,
    "with_source": False,
    "on_retire": True,
}


@QUICK
@example(**PARTLY_DROPPED)
@example(**DECLINED_AGAIN)
@given(**HISTORIES)
def test_every_rule_holds_in_every_history(**history: Any) -> None:
    every_rule_holds(**history)


@pytest.mark.full
@LONG
@given(**HISTORIES)
def test_every_rule_holds_in_very_many_histories(**history: Any) -> None:
    every_rule_holds(**history)


def the_manager_keeps_what_is_needed(
    count: int,
    batches: int,
    options: CoordinatorOptions,
    rates: Rates,
    seed: int,
    resting_told: int,
) -> None:
    bounds = Bounds(resting_told=resting_told, resting_for_an_answer=1)
    with (
        memory_folder() as folder,
        SnapshotManager(
            CheckpointFolders(folder).segments, max_file_bytes=2_000, max_space_amplification=None
        ) as manager,
    ):
        world = World(
            regions=list(names(count)),
            batches=batches,
            options=replace(options, bounds=bounds),
            rates=rates,
            seed=seed,
            folder=folder,
            manager=manager,
        )
        world.run()
        # A restart tells everything again, but for what was refused; this time nothing is lost.
        world.rates = Rates()
        world.crashed()
        world.options = options
        world.boot()
        world.host.close()
        needed = {ref for m in world.disk.values() for _, _, ref in m.segments("p")}
        assert len(needed) <= manager.stats().live_segments <= len(needed | world.leaked)
        manager.wait_for_deletes()
        closed = {file.file for file in manager.files() if not file.open}
        assert closed <= {ref.file for ref in needed | world.leaked}


WITH_MANAGER: dict[str, Any] = {
    "count": st.integers(1, 6),
    "batches": st.integers(1, 8),
    "options": OPTIONS,
    "rates": RATES,
    "seed": st.integers(0, 2**32),
    "resting_told": st.sampled_from([0, 1, Bounds().resting_told]),
}


@settings(QUICK, max_examples=80)
@given(**WITH_MANAGER)
def test_managers_keep_exactly_the_segments_that_are_needed(**history: Any) -> None:
    the_manager_keeps_what_is_needed(**history)


@pytest.mark.full
@settings(LONG, max_examples=2_000)
@given(**WITH_MANAGER)
def test_managers_keep_exactly_the_segments_in_very_many_histories(**history: Any) -> None:
    the_manager_keeps_what_is_needed(**history)


@pytest.mark.parametrize(
    ("what", "seen"),
    {
        "regional checkpoints": lambda world: regional(world) > 0,
        "forced attempts that were declined": lambda world: aborts(world, "forced") > 0,
        "mandatory attempts that were aborted": lambda world: aborts(world, "mandatory") > 0,
        "counted aborts": lambda world: aborts(world, "counted") > 0,
        "crashes": lambda world: any(entry[0] == "crash" for entry in world.oracle.log),
        "regions past their bound": lambda world: "failed again" in (world.failed_query or ""),
        "too many aborts": lambda world: "in a row were aborted" in (world.failed_query or ""),
        "attempts that failed for too long": (
            lambda world: "global_timeout" in (world.failed_query or "")
        ),
        "lost tasks in regional checkpoints": lambda world: world.survived_lost_tasks > 0,
        "regions that were retired": lambda world: world.retired > 0,
        "deletes that were refused": lambda world: world.refused_deletes > 0,
        "files of several regions": lambda world: world.shared_files > 0,
        "histories to the end": lambda world: world.failed_query is None,
    }.items(),
)
def test_histories_are_of_every_kind(what: str, seen: Callable[[World], bool]) -> None:
    """The properties above say little if nothing ever goes wrong, or everything does."""
    rates = Rates(
        crash=0.01,
        decline=0.05,
        silence=0.1,
        repeat=0.1,
        coordinator=0.01,
        publish=0.02,
        undeleted=0.05,
        drain=0.4,
        unaligned=0.05,
        lost_task=0.05,
        together=0.3 if "files" in what else 0.0,
    )
    found = 0
    for seed in range(60):
        with memory_folder() as folder:
            world = World(
                regions=list(names(8)),
                batches=8,
                options=CoordinatorOptions(
                    max_region_staleness=Staleness(checkpoints=2),
                    tolerable_failed_checkpoints=1,
                    global_timeout_ms=200,
                    retire_idle_ms=100,
                ),
                rates=rates,
                seed=seed,
                folder=folder,
            )
            world.run()
        found += seen(world)
        if found >= 3:
            return
    pytest.fail(f"expected at least 3 of 60 histories with {what}, found {found}")


def regional(world: World) -> int:
    return sum(
        any(content.failed for content in regions.values())
        for _, regions, _ in world.oracle.published()
    )


def aborts(world: World, why: str) -> int:
    return sum(entry[:2] == ("aborted", why) for entry in world.oracle.log)
