"""CPU time of a process and everything it started, whatever its process group."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path


def cpu_of_tree(root: int) -> float:
    """Return the CPU seconds of a process and its descendants so far, ended children included.

    Spark's Python workers have a process group of their own, so a group does not hold them.
    """
    stats = dict(_stats())
    tree = {root}
    # A child may have a smaller number than its parent: go on until nothing is added.
    grown = True
    while grown:
        found = {pid for pid, fields in stats.items() if int(fields[1]) in tree}
        grown = not found <= tree
        tree |= found
    ticks = sum(int(tick) for pid in tree & stats.keys() for tick in stats[pid][11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def _stats() -> Iterator[tuple[int, list[str]]]:
    """Yield process id and fields of ``/proc/PID/stat``, from the state on."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue  # It ended while we looked.
        yield int(entry.name), stat.rpartition(")")[2].split()
