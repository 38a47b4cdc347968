"""One child process in which everything that a benchmark compares takes turns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.process import follow
from harness.screen import RunLine, Screen

_SILENCE_S = 600.0


def run_turns(
    screen: Screen,
    title: str,
    script: Path,
    *,
    spec: Mapping[str, Any],
    log: Path,
    on_event: Callable[[RunLine, str, Mapping[str, Any]], None],
) -> None:
    """Run a script to its end, with a line on the screen.

    Parameters
    ----------
    on_event
        Called with the line, kind and fields of every event.

    Raises
    ------
    ChildError
        If the script fails or is silent for ten minutes.
    """
    with screen.runs():
        line = screen.run(title, rows=None)
        follow(
            [str(script)],
            spec=spec,
            log=log,
            silence_s=_SILENCE_S,
            on_event=lambda kind, fields: on_event(line, kind, fields),
        )
        line.finish("done")
