"""The application of ``bad_rows_job.py``, for tests."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Self

from support import environment, program


class Application:
    """Runs one query after another in one application."""

    def __init__(
        self, folder: Path, *arguments: str, variables: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.log = folder / "log.txt"
        self.process = subprocess.Popen(
            [
                *(sys.executable, program("spark/bad_rows_job.py")),
                *("--folder", str(folder), *arguments),
            ],
            env=environment(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("wb"),
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        self.process.stdin.close()
        try:
            self.process.wait(60)
        finally:
            self.process.kill()

    def run(self, folder: Path, query: str, **more: Any) -> dict[str, Any]:
        """The progress, rows and dead letters of a run, its error, and what was logged."""
        begins = self.log.stat().st_size
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        wanted = {"folder": str(folder), "query": query, **more}
        print(json.dumps(wanted), file=self.process.stdin, flush=True)
        answer = self.process.stdout.readline()
        logged = self.log.read_bytes()[begins:].decode(errors="replace")
        assert answer, logged[-10_000:]
        found: dict[str, Any] = json.loads(answer)
        return {**found, "log": logged}
