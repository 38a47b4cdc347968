"""Servers on loopback, as processes that tests start."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable
from subprocess import Popen

START_SECONDS = 120.0


def free_port() -> int:
    """A port that nothing listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    """True if a process accepts connections there."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def wait_until_up(
    process: Popen[bytes], what: str, is_up: Callable[[], bool], log: Callable[[], str]
) -> None:
    """Wait until a server that was just started serves.

    Raises an AssertionError with the end of its log if it ends before, or does not serve in time.
    """
    deadline = time.monotonic() + START_SECONDS
    while not is_up():
        if process.poll() is not None or time.monotonic() > deadline:
            raise AssertionError(f"{what} did not start:\n{log()[-6000:]}")
        time.sleep(0.1)
