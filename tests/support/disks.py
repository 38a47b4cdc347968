"""File systems of a few MiB, which real programs fill."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest


def small_disk(folder: Path, size: str) -> list[str]:
    """Words of a command that runs the rest of its line with a small file system at a folder.

    Only that program sees it, in a namespace that needs no privileges. The test is skipped where
    the system allows none. `folder` is empty, and `size` is in the notation of ``mount``, such as
    ``512k``.
    """
    unshare = shutil.which("unshare")
    if unshare is None:
        pytest.skip("unshare is not installed")
    mount = f'mount -t tmpfs -o size={size} none "$0" && exec "$@"'
    command = [unshare, "--user", "--map-root-user", "--mount", "sh", "-c", mount, str(folder)]
    if subprocess.run([*command, "true"], check=False, capture_output=True, timeout=60).returncode:
        pytest.skip("a file system cannot be mounted here")
    return command
