"""Snapshots of one large array state, in host memory or on a GPU: no Spark, no tasks."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np
from common.report import Result
from common.rounds import Metric, Run
from common.targets import MEASURED, Target

from harness.figures import Spread
from harness.screen import Screen
from holdfast import SegmentRef, SnapshotManager
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.state.chunks import MIB
from holdfast.regions.state.registry import StateRegistry
from holdfast.regions.state.saved import SavedState
from holdfast.regions.state.segments import segments_of, write_operator

GIB = 1024 * MIB

COPY = Metric(name="copy_ms", title="plain copy of the array, ms", decimals=2)
STALL = Metric(name="stall_ms", title="stall, all changed, ms", decimals=2)
STALL_SHARE = Metric(name="stall_of_copy", title="stall, times a plain copy", decimals=3)
STALL_FEW = Metric(name="stall_few_ms", title="stall, few changed, ms", decimals=2)
PINNED = Metric(name="pinned_gib_s", title="pinned copy to the host, GiB/s", decimals=1)
FETCH = Metric(name="fetch_gib_s", title="background copy to the host, GiB/s", decimals=1)
FETCH_SHARE = Metric(name="pinned_of_fetch", title="pinned copy, times background", decimals=3)
FULL = Metric(name="full_ms", title="stall and write, all changed, ms")
FEW = Metric(name="few_ms", title="stall and write, few changed, ms")
FEW_SHARE = Metric(name="few_of_full", title="few changed, times all changed", decimals=3)

METRICS = (COPY, STALL, STALL_SHARE, STALL_FEW, PINNED, FETCH, FETCH_SHARE, FULL, FEW, FEW_SHARE)

FEW_TARGET = Target(metric=FEW_SHARE, at_most=0.15)
# The background copy reaches at least 0.8 of the pinned one.
DEVICE_TARGETS = (
    Target(metric=STALL_SHARE, at_most=1.5),
    Target(metric=FETCH_SHARE, at_most=1 / 0.8),
)

#: One chunk in so many changes where few do.
_ONE_IN = 20
_REPEATS = 3
_PINNED_BYTES = 256 * MIB
# Random bytes are repeated at a distance that compression does not see.
_BLOCK_BYTES = 64 * MIB
_OWNERS = RegionOwners("bench", "region")

NOTES = (
    "Stall: what the operator waits for. Write: to merged files, durable. Few changed: one byte in "
    f"each {_ONE_IN}th chunk of 1 MiB.\nThe background copy drops its bytes; the pinned "
    f"copy goes through one page-locked buffer of {_PINNED_BYTES // MIB} MiB."
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to measure."""

    folder: Path
    rounds: int
    module: Literal["numpy", "cupy"]
    state_bytes: int

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return "gpu" if self.module == "cupy" else "state"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        return (
            f"one array of {self.state_bytes / GIB:g} GiB of {self.library()}, random bytes; "
            f"{self.rounds} rounds"
        )

    def library(self) -> str:
        """Name the array module, its version, and the device it works on."""
        xp = importlib.import_module(self.module)
        name = f"{self.module} {xp.__version__}"
        if self.module == "numpy":
            return name
        device = xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)
        return f"{name} on {device['name'].decode()}"

    def measure(self, screen: Screen) -> Result:
        """Run all rounds."""
        runs = []
        with screen.runs():
            _measure_once(self)  # Warms up.
            for number in range(self.rounds):
                line = screen.run(f"round {number + 1}", rows=None)
                load = os.getloadavg()[0]
                values = _measure_once(self)
                runs.append(Run(provider=MEASURED, round_number=number, load=load, values=values))
                line.finish("done")
        on_device = self.module == "cupy"
        return Result(
            name="gpu-state" if on_device else "state",
            plan={
                "rounds": self.rounds,
                "library": self.library(),
                "state_bytes": self.state_bytes,
                "one_in": _ONE_IN,
            },
            metrics=METRICS if on_device else [metric for metric in METRICS if _on_host(metric)],
            targets=(*DEVICE_TARGETS, FEW_TARGET) if on_device else (FEW_TARGET,),
            runs=runs,
            notes=NOTES,
        )


def missing_device() -> str | None:
    """Say why nothing can be measured on a GPU; None where it can."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        return "CuPy is not installed"
    return None if cupy.cuda.is_available() else "there is no CUDA device"


def plans(
    module: Literal["numpy", "cupy"], options: argparse.Namespace, folder: Path
) -> Iterator[Plan]:
    """Yield what to measure of an array module, by the options of ``benches/run.py``."""
    mib = options.state_mib or (512 if module == "numpy" else 4096)
    yield Plan(folder=folder, rounds=options.rounds, module=module, state_bytes=mib * MIB)


def _on_host(metric: Metric) -> bool:
    return metric not in (PINNED, FETCH, FETCH_SHARE)


class _State:
    """One array state, its registry, and a manager for its segments."""

    def __init__(self, plan: Plan, manager: SnapshotManager) -> None:
        self._xp: Any = importlib.import_module(plan.module)
        self._manager = manager
        self._attempt = 0
        self._registry = StateRegistry(self._xp)
        self.array = self._registry.array("state", shape=(plan.state_bytes,), dtype="uint8")
        block = self._xp.asarray(np.random.default_rng(1).integers(0, 256, _BLOCK_BYTES, np.uint8))
        for number, start in enumerate(range(0, plan.state_bytes, _BLOCK_BYTES)):
            part = self.array[start : start + _BLOCK_BYTES]
            part[:] = block[: part.size] + number

    def change_all(self) -> None:
        """Change every byte."""
        self.array += 1
        self.wait()

    def change_few(self) -> None:
        """Change one chunk in twenty, other ones every time."""
        self.array[self._attempt % _ONE_IN * MIB :: _ONE_IN * MIB] += 1
        self.wait()

    def wait(self) -> None:
        """Return when the device has done what was queued; at once without a device."""
        if self._xp is not np:
            self._xp.cuda.Device().synchronize()

    def copy_ms(self) -> float:
        """Copy the array beside itself."""
        begun = time.perf_counter()
        copy = self.array.copy()
        self.wait()
        took_ms = _ms_since(begun)
        del copy
        return took_ms

    def snapshot(self) -> tuple[float, float]:
        """Take and write a snapshot; returns the stall and all of it, in milliseconds."""
        self._attempt += 1
        number = self._attempt
        self._manager.started(number)

        def lease(state: str, refs: Sequence[SegmentRef]) -> list[bool]:
            return self._manager.lease(_OWNERS.state("operator", state), number, refs)

        begun = time.perf_counter()
        frozen = self._registry.freeze(lease)
        stall_ms = _ms_since(begun)
        entry = write_operator(self._manager, _OWNERS, number, "operator", frozen)
        for owner, refs in segments_of(_OWNERS, entry):
            self._manager.persist_segments(number, owner, refs)
        total_ms = _ms_since(begun)
        self._manager.completed(number, {number: {}})
        return stall_ms, total_ms

    def fetch_gib_s(self) -> float:
        """Take a snapshot and drop what comes to the host."""
        nowhere = SegmentRef.from_bytes(bytes(44))
        self.change_all()
        (frozen,) = self._registry.freeze(lambda state, refs: [False] * len(refs))
        assert not isinstance(frozen, SavedState)
        begun = time.perf_counter()
        frozen.write(lambda data: nowhere)
        return _gib_s(self.array.nbytes, begun)

    def pinned_gib_s(self) -> float:
        """Copy the array to the host as fast as that goes."""
        import cupyx

        buffer = cupyx.empty_pinned(min(_PINNED_BYTES, self.array.nbytes), np.uint8)
        stream = self._xp.cuda.Stream(non_blocking=True)
        begun = time.perf_counter()
        for start in range(0, self.array.nbytes, buffer.nbytes):
            size = min(buffer.nbytes, self.array.nbytes - start)
            source = self.array.data + start
            source.copy_to_host_async(buffer.ctypes.data, size, stream)
        stream.synchronize()
        return _gib_s(self.array.nbytes, begun)


def _measure_once(plan: Plan) -> dict[str, list[float]]:
    folder = plan.folder / "state"
    with SnapshotManager(folder, max_file_bytes=256 * MIB) as manager:
        state = _State(plan, manager)
        state.snapshot()  # warms up, and is what the next ones build on
        copies = [state.copy_ms() for _ in range(_REPEATS)]
        copy_ms = Spread.of(copies).median
        state.change_all()
        stall_ms, full_ms = state.snapshot()
        few = []
        for _ in range(_REPEATS):
            state.change_few()
            few.append(state.snapshot())
        values = {
            COPY.name: copies,
            STALL.name: [stall_ms],
            STALL_SHARE.name: [stall_ms / copy_ms],
            STALL_FEW.name: [stall for stall, _ in few],
            FULL.name: [full_ms],
            FEW.name: [total for _, total in few],
            FEW_SHARE.name: [total / full_ms for _, total in few],
        }
        if plan.module == "cupy":
            pinned, fetched = state.pinned_gib_s(), state.fetch_gib_s()
            values |= {
                PINNED.name: [pinned],
                FETCH.name: [fetched],
                FETCH_SHARE.name: [pinned / fetched],
            }
    shutil.rmtree(folder)
    return values


def _ms_since(begun: float) -> float:
    return (time.perf_counter() - begun) * 1e3


def _gib_s(nbytes: int, begun: float) -> float:
    return nbytes / GIB / (time.perf_counter() - begun)
