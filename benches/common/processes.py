"""CPU time of a process and everything it started, whatever its process group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from harness.process import cpu_of, process_stats


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
