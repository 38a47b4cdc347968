"""Snapshots of one large array state, in host memory or on a GPU: no Spark, no tasks."""

from __future__ import annotations

import argparse
import importlib
import os
import shutil
from collections.abc import Iterator, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from common.report import Result
from common.rounds import Metric, Run, rotated
from common.targets import MEASURED, Target

from gpu import device
from gpu.beside import PLAIN_FILE, Saver, measured, missing_torch, savers
from gpu.held import GIB, ONE_IN, HeldArray
from harness.figures import Spread
from harness.screen import Screen
from holdfast import SnapshotManager
from holdfast.regions.state.arrays.chunks import MIB

COPY = Metric(name="copy_ms", title="plain copy of the array, ms", decimals=2)
STALL = Metric(name="stall_ms", title="stall, all changed, ms", decimals=2)
STALL_SHARE = Metric(name="stall_of_copy", title="stall, all changed, times a copy", decimals=3)
STALL_FIRST = Metric(name="stall_first_ms", title="stall, all changed after few, ms", decimals=2)
STALL_FEW = Metric(name="stall_few_ms", title="stall, few changed, ms", decimals=2)
STALL_FEW_SHARE = Metric(
    name="stall_few_of_copy", title="stall, few changed, times a copy", decimals=3
)
DURABLE = Metric(name="durable_ms", title="until durable, all changed, ms")
FEW = Metric(name="few_ms", title="until durable, few changed, ms")
FEW_SHARE = Metric(name="few_of_durable", title="few changed, times all changed", decimals=3)
RESTORE = Metric(name="restore_ms", title="restore, ms")

PINNED = Metric(
    name="pinned_gib_s", title="pinned copy to the host, GiB/s", decimals=1, more_is_better=True
)
FETCH = Metric(
    name="fetch_gib_s", title="background copy to the host, GiB/s", decimals=1, more_is_better=True
)
FETCH_SHARE = Metric(name="pinned_of_fetch", title="pinned copy, times background", decimals=3)
DIGESTS = Metric(name="digests_gib_s", title="digests, GiB/s", more_is_better=True)
MEMORY_SHARE = Metric(name="memory_of_digests", title="memory bandwidth, times digests", decimals=3)
EXTRA_FEW = Metric(name="extra_few", title="extra memory, few changed, of the array", decimals=4)
EXTRA_ALL = Metric(name="extra_all", title="extra memory, all changed, of the array", decimals=4)

METRICS = (
    COPY,
    STALL,
    STALL_SHARE,
    STALL_FIRST,
    STALL_FEW,
    STALL_FEW_SHARE,
    DURABLE,
    FEW,
    FEW_SHARE,
    RESTORE,
)
DEVICE_METRICS = (PINNED, FETCH, FETCH_SHARE, DIGESTS, MEMORY_SHARE, EXTRA_FEW, EXTRA_ALL)

HOST_TARGETS = (Target(metric=FEW_SHARE, at_most=0.15),)
DEVICE_TARGETS = (
    Target(metric=STALL_SHARE, at_most=1.3),
    Target(metric=STALL_FEW_SHARE, at_most=0.75),
    # The background copy reaches at least 0.9 of the pinned one.
    Target(metric=FETCH_SHARE, at_most=1 / 0.9),
    Target(metric=DURABLE, at_most=1.15, to=PLAIN_FILE),
    Target(metric=FEW_SHARE, at_most=0.08),
    # The digests are read at 0.8 of the memory's bandwidth at least.
    Target(metric=MEMORY_SHARE, at_most=1 / 0.8),
    Target(metric=EXTRA_FEW, at_most=0.1),
)

_REPEATS = 3

NOTES = (
    "Stall: what the operator waits for. Until durable: the stall and the write, to merged files. "
    f"Few changed: one byte in each {ONE_IN}th chunk of 1 MiB.\n"
    "The first snapshot with another amount of changes than before is not in these figures, but in "
    "a line of its own where all changed after few.\n"
    f"{PLAIN_FILE}: as many bytes of host memory, written in pieces of 8 MiB and synced. "
    "Restores read what was just written, from the page cache.\n"
    "The background copy drops its bytes; the pinned copy goes through one page-locked buffer. The "
    "bandwidth of the memory is what the device claims."
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A measurement of array states on one device."""

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
        left_out = missing_torch()
        return (
            f"one array of {self.state_bytes / GIB:g} GiB of {self.library()}, random bytes; "
            f"{self.rounds} rounds" + (f"\n{left_out}" if left_out else "")
        )

    def library(self) -> str:
        """Name the array module, its version, and the device it works on."""
        xp = importlib.import_module(self.module)
        name = f"{self.module} {xp.__version__}"
        if self.module == "numpy":
            return name
        properties = xp.cuda.runtime.getDeviceProperties(xp.cuda.Device().id)
        return f"{name} on {properties['name'].decode()}"

    def measure(self, screen: Screen) -> Result:
        """Run all rounds."""
        xp = importlib.import_module(self.module)
        beside = {saver.name: saver for saver in savers(xp)}
        runs = []
        with screen.runs():
            for name in (MEASURED, *beside):
                self._measured(name, beside)  # Warms up.
            for number in range(self.rounds):
                for name in rotated([MEASURED, *beside], number):
                    line = screen.run(f"{name}, round {number + 1}", rows=None)
                    load = os.getloadavg()[0]
                    values = self._measured(name, beside)
                    runs.append(Run(provider=name, round_number=number, load=load, values=values))
                    line.finish("done")
        on_device = self.module == "cupy"
        return Result(
            name="gpu-state" if on_device else "state",
            plan={
                "rounds": self.rounds,
                "library": self.library(),
                "state_bytes": self.state_bytes,
                "one_in": ONE_IN,
            },
            metrics=(*METRICS, *DEVICE_METRICS) if on_device else METRICS,
            targets=DEVICE_TARGETS if on_device else HOST_TARGETS,
            runs=runs,
            notes=NOTES,
            bases=(PLAIN_FILE,),
        )

    def _measured(self, name: str, beside: Mapping[str, Saver]) -> dict[str, list[float]]:
        folder = self.folder / "state"
        xp = importlib.import_module(self.module)
        with SnapshotManager(folder, max_file_bytes=256 * MIB) as manager:
            state = HeldArray(xp, self.state_bytes, manager)
            if name == MEASURED:
                values = _of_holdfast(state, on_device=self.module == "cupy")
            else:
                values = _of_another(beside[name], state, self.folder / "beside")
        shutil.rmtree(folder)
        return values


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


def _of_holdfast(state: HeldArray, *, on_device: bool) -> dict[str, list[float]]:
    meter = device.MemoryMeter()
    with meter.counts() if on_device else nullcontext():
        state.snapshot()  # warms up, and is what the next ones build on
        copies = [state.copy_ms() for _ in range(_REPEATS)]
        copy_ms = Spread.of(copies).median

        state.change_few()
        state.snapshot()
        state.change_all()
        first_ms, _ = state.snapshot()
        meter.peak_bytes()
        many = _snapshots(state, state.change_all)
        extra_all = meter.peak_bytes()
        state.change_few()
        state.snapshot()
        meter.peak_bytes()
        few = _snapshots(state, state.change_few)
        extra_few = meter.peak_bytes()

    durable_ms = Spread.of(total for _, total in many).median
    values = {
        COPY.name: copies,
        STALL.name: [stall for stall, _ in many],
        STALL_SHARE.name: [stall / copy_ms for stall, _ in many],
        STALL_FIRST.name: [first_ms],
        STALL_FEW.name: [stall for stall, _ in few],
        STALL_FEW_SHARE.name: [stall / copy_ms for stall, _ in few],
        DURABLE.name: [total for _, total in many],
        FEW.name: [total for _, total in few],
        FEW_SHARE.name: [total / durable_ms for _, total in few],
        RESTORE.name: [state.restore_ms()],
    }
    if on_device:
        values |= _of_device(state)
        values[EXTRA_FEW.name] = [extra_few / state.array.nbytes]
        values[EXTRA_ALL.name] = [extra_all / state.array.nbytes]
    return values


def _snapshots(state: HeldArray, change: Any) -> Sequence[tuple[float, float]]:
    found = []
    for _ in range(_REPEATS):
        change()
        found.append(state.snapshot())
    return found


def _of_device(state: HeldArray) -> dict[str, list[float]]:
    pinned, fetched = device.pinned_gib_s(state.array), state.fetch_gib_s()
    digests, memory = device.digests_gib_s(state.array), device.memory_gib_s()
    return {
        PINNED.name: [pinned],
        FETCH.name: [fetched],
        FETCH_SHARE.name: [pinned / fetched],
        DIGESTS.name: [digests],
        MEMORY_SHARE.name: [] if memory is None else [memory / digests],
    }


def _of_another(saver: Saver, state: HeldArray, folder: Path) -> dict[str, list[float]]:
    stall_ms, durable_ms, restore_ms = measured(saver, state.array, folder)
    return {
        STALL.name: [stall_ms],
        DURABLE.name: [durable_ms],
        RESTORE.name: [] if restore_ms is None else [restore_ms],
    }
