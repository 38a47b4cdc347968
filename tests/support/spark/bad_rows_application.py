"""An application such as ``bad_rows_job.py``, for tests."""

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
        self,
        folder: Path,
        *arguments: str,
        variables: Mapping[str, str] | None = None,
        name: str = "spark/bad_rows_job.py",
    ) -> None:
        folder.mkdir(exist_ok=True)
        self.log = folder / "log.txt"
        self.process = subprocess.Popen(
            [
                *(sys.executable, program(name)),
                *("--folder", str(folder), *arguments),
            ],
            env=environment(variables),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log.open("wb"),
            text=True,
            start_new_session=True,
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
        return self.answer({"folder": str(folder), "query": query, **more})

    def ask(self, wanted: Mapping[str, Any]) -> None:
        assert self.process.stdin is not None
        print(json.dumps(wanted), file=self.process.stdin, flush=True)

    def answer(self, wanted: Mapping[str, Any]) -> dict[str, Any]:
        """The answer to a line, what was logged, and what else was printed."""
        begins = self.log.stat().st_size
        self.ask(wanted)
        assert self.process.stdout is not None
        printed = [self.process.stdout.readline()]
        while printed[-1] and not printed[-1].startswith("{"):
            printed.append(self.process.stdout.readline())
        answer = printed.pop()
        logged = self.log.read_bytes()[begins:].decode(errors="replace")
        assert answer, logged[-10_000:]
        found: dict[str, Any] = json.loads(answer)
        return {**found, "log": logged, "printed": printed}
