"""A metadata file that cannot be made durable is not there: its attempt aborts (R18)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from support import preloadable

SOURCE = Path(__file__).with_name("failing_sync.c")

#: Fails the first sync of a write, then the second in another folder, ... until none is left.
PROGRAM = """
import ctypes, itertools, json, sys
from pathlib import Path
from holdfast._core import CheckpointMetadata

fail_sync = ctypes.CDLL(None).fail_sync
metadata = CheckpointMetadata(7, 0, "checkpoint", 0, b"", {})
outcomes = []
for nth in itertools.count(1):
    folder = Path(sys.argv[1], str(nth))
    fail_sync(nth)
    try:
        metadata.write(folder)
    except OSError as error:
        fail_sync(0)
        left = CheckpointMetadata.list(folder)
        path = metadata.write(folder)
        retried = CheckpointMetadata.read(path) == metadata
        outcomes.append([str(error), left, retried, [file.name for file in folder.iterdir()]])
    else:
        print(json.dumps(outcomes))
        break
"""


def test_after_any_failed_sync_the_file_is_absent_and_a_retry_works(tmp_path: Path) -> None:
    library = preloadable(SOURCE, tmp_path)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, str(tmp_path / "folders")],
        env={**os.environ, "LD_PRELOAD": str(library)},
        capture_output=True,
        text=True,
        check=True,
    )
    outcomes = json.loads(done.stdout)
    # Of the bytes and of the folder, before the rename and after it.
    assert len(outcomes) >= 3
    for message, left, retried, files in outcomes:
        assert "metadata of checkpoint 7" in message
        assert left == []
        assert retried
        assert files == ["0000000000000007.hfc"]
