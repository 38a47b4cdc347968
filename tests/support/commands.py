"""The command line of Holdfast in this process."""

from __future__ import annotations

import pytest

from holdfast.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, list[str], str]:
    """The exit status of a command, the lines of its output, and its stderr."""
    status = main([str(argument) for argument in arguments])
    said = capsys.readouterr()
    return status, said.out.splitlines(), said.err


def cells(line: str) -> list[str]:
    """The cells of a line of a table."""
    return [cell.strip() for cell in line.split("  ") if cell.strip()]
