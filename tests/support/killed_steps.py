"""Ends a command before or after any of its steps on a mounted folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from holdfast.files.mounted import MountedPath


class Killed(BaseException):
    """The process ends here."""


STEPS = ("create", "replace_text", "publish", "unlink", "sync", "make_folder")


def killed_at(monkeypatch: pytest.MonkeyPatch, step: int, after: bool) -> Callable[[], int]:
    """Ends the process before or after a step; returns their number."""
    steps = 0

    def wrapped(name: str) -> Callable[..., Any]:
        real = getattr(MountedPath, name)

        def call(self: MountedPath, *args: Any, **kwargs: Any) -> Any:
            nonlocal steps
            steps += 1
            if steps == step and not after:
                raise Killed
            done = real(self, *args, **kwargs)
            if steps == step:
                raise Killed
            return done

        return call

    for name in STEPS:
        monkeypatch.setattr(MountedPath, name, wrapped(name))
    return lambda: steps


def kills() -> Iterator[tuple[int, bool]]:
    yield from ((step, after) for step in range(1, 20) for after in (False, True))
