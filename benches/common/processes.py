"""The kernel's figures of processes: memory, reads and writes, CPU time."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from harness.process import cpu_of, process_stats

_RESIDENT = re.compile(r"^VmRSS:\s+(\d+) kB", re.MULTILINE)
_PEAK = re.compile(r"^VmHWM:\s+(\d+) kB", re.MULTILINE)


class Process:
    """The kernel's figures of one process."""

    def __init__(self, number: int) -> None:
        self.number = number
        self._folder = Path(f"/proc/{number}")

    def calls(self) -> dict[str, int]:
        """Return numbers and bytes of its reads and writes so far."""
        lines = (self._folder / "io").read_text().splitlines()
        return {name: int(count) for name, count in (line.split(": ") for line in lines)}

    def resident_bytes(self) -> int:
        """Return its resident memory, and begin to look for the most anew."""
        (self._folder / "clear_refs").write_text("5")
        return self._kib(_RESIDENT) << 10

    def peak_bytes(self) -> int:
        """Return the most resident memory since `resident_bytes` was called last."""
        return self._kib(_PEAK) << 10

    def _kib(self, field: re.Pattern[str]) -> int:
        found = field.search((self._folder / "status").read_text())
        assert found is not None
        return int(found.group(1))


def cpu_of_tree(root: int) -> float:
    """Return the CPU seconds of a process and its descendants so far, ended children included.

    Spark's Python workers have a process group of their own, so a group does not hold them.
    """
    return cpu_of(lambda: _tree(root))


def _tree(root: int) -> Mapping[int, Sequence[str]]:
    stats = dict(process_stats())
    tree = {root}
    # A child may have a smaller number than its parent: go on until nothing is added.
    grown = True
    while grown:
        found = {pid for pid, fields in stats.items() if int(fields[1]) in tree}
        grown = not found <= tree
        tree |= found
    return {pid: stats[pid] for pid in tree & stats.keys()}
