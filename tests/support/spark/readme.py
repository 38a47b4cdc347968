"""The fenced blocks of a Markdown file, and a reader who follows them."""

from __future__ import annotations

import json
import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Self

from support import clean_environment
from support.spark.class_archive import archive, options

# A language, or a directive of the site such as {toctree}.
_FENCED = re.compile(r"^```(\w*|\{[\w-]+\})\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_FENCE = re.compile(r"^\s*(?:```|~~~)", re.MULTILINE)

_COMMAND_S = 600.0

# A Python session: runs its input, and answers with the output.
_SESSION = """
import contextlib, io, json, os, sys, traceback

_answers = os.fdopen(os.dup(1), "w", buffering=1)
os.dup2(2, 1)
for _sent in sys.stdin:
    _printed, _failed = io.StringIO(), None
    with contextlib.redirect_stdout(_printed):
        try:
            exec(compile(json.loads(_sent), "document", "exec"), globals())
        except Exception:
            _failed = traceback.format_exc()
    print(json.dumps([_printed.getvalue(), _failed]), file=_answers)
"""


@dataclass(frozen=True)
class Block:
    """The text between two fences, with its language and the line of the first fence."""

    language: str
    text: str
    line: int

    def commands(self) -> Iterator[tuple[str, list[str]]]:
        """Yield the lines after ``$``, with the output of each."""
        for part in re.split(r"^\$ ", self.text, flags=re.MULTILINE)[1:]:
            command, *output = part.splitlines()
            yield command, output


def blocks(file: Path) -> list[Block]:
    """Return the fenced blocks of a file, in order, without diagrams."""
    text = file.read_text()
    found = [
        Block(match[1], match[2], text.count("\n", 0, match.start()) + 1)
        for match in _FENCED.finditer(text)
    ]
    # Fences of another form would hide programs from the reader.
    assert 2 * len(found) == len(_FENCE.findall(text))
    return [block for block in found if block.language != "mermaid"]


def block(file: Path, begins: str) -> Block:
    """Return the one block of a file with this beginning."""
    (found,) = (block for block in blocks(file) if block.text.startswith(begins))
    return found


class Reader:
    """A person with a folder, an installation of Holdfast, and no settings but ``spark_defaults``.

    Parameters
    ----------
    folder
        The folder in which programs and commands run.
    installation
        A virtual environment; its commands are first on ``PATH``.
    spark_defaults
        The folder with ``spark-defaults.conf``, if any.
    """

    def __init__(
        self, folder: Path, installation: Path, spark_defaults: Path | None = None
    ) -> None:
        self.folder = folder
        self._python = str(installation / "bin" / "python")
        # For `java`, not `javac`. System properties are the weakest of Spark's settings.
        spark = {
            "ui.enabled": "false",
            "ui.showConsoleProgress": "false",
            "driver.host": "127.0.0.1",
        }
        given = (f"-Dspark.{key}={value}" for key, value in spark.items())
        self._environment = clean_environment() | {
            "PATH": f"{installation / 'bin'}{os.pathsep}{os.environ['PATH']}",
            "JDK_JAVA_OPTIONS": " ".join([options(archive()), *given]),
        }
        if spark_defaults:
            self._environment["SPARK_CONF_DIR"] = str(spark_defaults)
        self._session: subprocess.Popen[str] | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._session is not None:
            self._session.communicate()

    def shell(
        self, command: str, *, folder: Path | None = None, with_errors: bool = True
    ) -> list[str]:
        """Run lines of a shell, and return the lines of a terminal; stderr only ``with_errors``."""
        done = subprocess.run(
            ["bash", "-euc", command],
            cwd=folder or self.folder,
            env=self._environment,
            check=False,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT if with_errors else subprocess.PIPE,
            text=True,
            timeout=_COMMAND_S,
        )
        assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr or ''}"
        return done.stdout.splitlines()

    def paste(self, program: str) -> list[str]:
        """Run a program in the Python session, and return its output lines."""
        if self._session is None:
            self._session = subprocess.Popen(
                [self._python, "-c", _SESSION],
                cwd=self.folder,
                env=self._environment,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                text=True,
                bufsize=1,
            )
        assert self._session.stdin is not None
        assert self._session.stdout is not None
        print(json.dumps(program), file=self._session.stdin)
        printed, failed = json.loads(self._session.stdout.readline())
        assert failed is None, failed
        lines: list[str] = printed.splitlines()
        return lines
