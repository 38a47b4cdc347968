"""A real full disk: a file system of a few hundred KiB in a namespace of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from support.disks import small_disk

PROGRAM = """
import errno, json, os, sys
from pathlib import Path
from random import Random
from holdfast import Owner, SnapshotManager

disk = Path(sys.argv[1])
east, west = Owner("sales", "stats", "east"), Owner("sales", "stats", "west")
facts = {}
noise = Random(1).randbytes

def used():
    found = os.statvfs(disk)
    return (found.f_blocks - found.f_bfree) * found.f_frsize

def full(call):
    try:
        call()
    except OSError as error:
        return errno.errorcode[error.errno]
    return "there was space"

with SnapshotManager(disk / "segments", compression="none") as manager:
    neighbour = manager.append(east, 1, noise(20_000))
    before = used()
    for _ in range(3):
        facts["too much"] = full(lambda: manager.append(west, 1, noise(600_000)))
    facts["given back"] = used() == before
    fits = manager.append(west, 1, b"what fits")
    facts["same file"] = fits.file == neighbour.file
    (disk / "filler").write_bytes(b"")
    with open(disk / "filler", "ab", buffering=0) as filler:
        facts["filled"] = full(lambda: [filler.write(noise(4096)) for _ in range(1000)])
    facts["no space"] = full(lambda: [manager.append(west, 1, noise(4096)) for _ in range(2)])
    manager.persist_segments(1, east, [neighbour])
    manager.persist_segments(1, west, [fits])
    manager.completed(1, {1: {}})
    (disk / "filler").unlink()
    later = manager.append(west, 2, noise(20_000))
    manager.persist(2)
    manager.completed(2, {2: {}})
    facts["read"] = manager.read(fits, west) == b"what fits"
    stored = sum(file.stat().st_size for file in (disk / "segments").iterdir())
    files = manager.files()
    facts["counted"] = sum(file.physical_bytes for file in files) == stored
    facts["wasteful"] = [file.wasteful for file in files]
    facts["files"] = len(files)
    manager.append(east, 3, b"small")
    manager.completed(3, {3: {}})
with SnapshotManager(disk / "segments") as manager:
    manager.restore({})
    manager.sweep()
    facts["left"] = manager.stats().physical_bytes
print(json.dumps(facts))
"""


def facts_of(disk: Path) -> dict[str, Any]:
    program = [*small_disk(disk, "512k"), sys.executable, "-c", PROGRAM, str(disk)]
    done = subprocess.run(program, check=False, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    facts: dict[str, Any] = json.loads(done.stdout)
    return facts


def test_a_full_disk_costs_the_append_and_nothing_else(tmp_path: Path) -> None:
    facts = facts_of(tmp_path)
    assert facts == {
        "too much": "ENOSPC",
        "given back": True,
        "same file": True,
        "filled": "ENOSPC",
        "no space": "ENOSPC",
        "read": True,
        "counted": True,
        "wasteful": [False],
        "files": 1,
        "left": 0,
    }
