"""The command line on file systems that only Spark reaches."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from support import environment


def run_command(
    settings: Mapping[str, str], folder: Path, *arguments: str
) -> subprocess.CompletedProcess[str]:
    """Run ``holdfast`` with settings of Spark: ``spark-defaults.conf`` is written to `folder`."""
    conf = folder / "conf"
    conf.mkdir(exist_ok=True)
    lines = (f"{key} {value}\n" for key, value in settings.items())
    (conf / "spark-defaults.conf").write_text("".join(lines))
    return subprocess.run(
        [sys.executable, "-m", "holdfast", *arguments],
        env=environment() | {"SPARK_CONF_DIR": str(conf)},
        capture_output=True,
        text=True,
        check=False,
        timeout=300,
    )
