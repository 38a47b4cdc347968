"""A connection on loopback that is slow and breaks, like a network."""

from __future__ import annotations

import random
import socket
import threading
import time
from contextlib import suppress
from types import TracebackType
from typing import Self

CHUNK_BYTES = 64 << 10


def _half(piece: bytes) -> bytes:
    """Return the first half of a piece of a connection, or nothing of an answer's header.

    S3A's client accepts a header without its end, and so do Spark's own logs, which are then read
    without a length.
    """
    half = piece[: len(piece) // 2]
    return b"" if half.startswith(b"HTTP/") and b"\r\n\r\n" not in half else half


class UnreliableProxy:
    """Passes bytes on to a port, late, and sometimes closes a connection in the middle of them.

    A request may not arrive, arrive in part, or be carried out without an answer.

    Parameters
    ----------
    port
        The port, on this machine.
    delay_ms
        Delay of each piece of a request.
    pieces_per_break
        Pieces of requests and answers after which a connection breaks, on average.
    seed
        Seed of the random choice.
    """

    def __init__(self, port: int, *, delay_ms: int, pieces_per_break: int, seed: int = 1) -> None:
        self._port = port
        self._delay_s = delay_ms / 1000
        self._pieces_per_break = pieces_per_break
        self._random = random.Random(seed)  # noqa: S311
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.breaks = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            with suppress(OSError):
                server = socket.create_connection(("127.0.0.1", self._port))
                for one, other, delay_s in (
                    (client, server, self._delay_s),
                    (server, client, 0.0),
                ):
                    threading.Thread(
                        target=self._pass_on, args=(one, other, delay_s), daemon=True
                    ).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, delay_s: float) -> None:
        with suppress(OSError):
            while piece := one.recv(CHUNK_BYTES):
                time.sleep(delay_s)
                if self._random.randrange(self._pieces_per_break) == 0:
                    self.breaks += 1
                    other.sendall(_half(piece))
                    break
                other.sendall(piece)
        for each in (one, other):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
