"""CPU time of a process and everything it started, whatever its process group."""

from __future__ import annotations

from holdfast.demo.process import cpu_seconds, process_stats


def cpu_of_tree(root: int) -> float:
    """Return the CPU seconds of a process and its descendants so far, ended children included.

    Spark's Python workers have a process group of their own, so a group does not hold them.
    """
    stats = dict(process_stats())
    tree = {root}
    # A child may have a smaller number than its parent: go on until nothing is added.
    grown = True
    while grown:
        found = {pid for pid, fields in stats.items() if int(fields[1]) in tree}
        grown = not found <= tree
        tree |= found
    return cpu_seconds(stats[pid] for pid in tree & stats.keys())
