"""Servers in front of a server of the S3 protocol, which answer some requests themselves."""

from __future__ import annotations

import threading
import time
from abc import abstractmethod
from collections import Counter
from dataclasses import dataclass
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final, NamedTuple, Self
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from support.spark.object_stores import S3Server

_NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
_REFUSAL: Final = "<Code>AccessDenied</Code><Message>Access Denied</Message>"
_SLOW_DOWN: Final = "<Code>SlowDown</Code><Message>Please reduce your request rate.</Message>"
#: Headers of one connection, not of its content; the length of an answer is set again.
_OF_A_CONNECTION: Final = ("connection", "transfer-encoding", "content-length")


@dataclass(frozen=True)
class Request:
    """A request, with its path and query decoded."""

    method: str
    path: str
    query: str
    body: bytes


class Answer(NamedTuple):
    """An answer of a server."""

    status: int
    body: bytes


class OwnAnswers:
    """Passes requests on to a server, except those that it answers itself."""

    def __init__(self, server: S3Server) -> None:
        target = urlsplit(server.settings["fs.s3a.endpoint"]).netloc
        outer = self

        class Handler(_Handler):
            answers = outer
            to = target

        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._listener.server_port}"

    @abstractmethod
    def answer(self, request: Request) -> Answer | None:
        """Answer a request; None passes it on."""

    def __enter__(self) -> Self:
        threading.Thread(target=self._listener.serve_forever, daemon=True).start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._listener.shutdown()
        self._listener.server_close()


class RefusedDeletes(OwnAnswers):
    """Refuses to delete objects of some names, like a policy.

    A request to delete several deletes the others, and answers for each.

    Parameters
    ----------
    server
        The server; other objects of a request with refused ones are deleted in its folder.
    """

    def __init__(self, server: S3Server) -> None:
        super().__init__(server)
        self.names: frozenset[str] = frozenset()
        self.refused = 0
        self._buckets = server.folder / "buckets"

    def refuse(self, *names: str) -> None:
        """Refuse to delete objects of these names from now on, and no others."""
        self.names = frozenset(names)

    def answer(self, request: Request) -> Answer | None:
        if request.method == "DELETE" and self._is_refused(request.path):
            return Answer(403, f"<Error>{_REFUSAL}</Error>".encode())
        if request.method == "POST" and request.query == "delete":
            return Answer(200, self._delete(request.path.strip("/"), request.body))
        return None

    def _is_refused(self, key: str) -> bool:
        stays = key.rsplit("/", 1)[-1] in self.names
        self.refused += stays
        return stays

    def _delete(self, bucket: str, body: bytes) -> bytes:
        wanted = [key.text or "" for key in ElementTree.fromstring(body).iter() if _is_key(key)]  # noqa: S314
        said = []
        for key in wanted:
            if self._is_refused(key):
                said.append(f"<Error><Key>{key}</Key>{_REFUSAL}</Error>")
            else:
                (self._buckets / bucket / key).unlink(missing_ok=True)
                said.append(f"<Deleted><Key>{key}</Key></Deleted>")
        return f'<DeleteResult xmlns="{_NAMESPACE}">{"".join(said)}</DeleteResult>'.encode()


class SlowStore(OwnAnswers):
    """Answers 503 SlowDown to requests of some kinds: the first few of each name, or for a time.

    Parameters
    ----------
    server
        The server.
    times
        How often it answers so to each request, by method and path.
    seconds
        From its first such answer on it answers so to all requests, for this time.
    """

    #: A method and a part of the path or query, by the name of a kind.
    KINDS: Final = {
        "state": ("PUT", "/state/holdfast/"),
        "list": ("GET", "list-type=2"),
        "plan": ("PUT", "/offsets/"),
        "commit": ("PUT", "/commits/"),
    }

    def __init__(self, server: S3Server, *, times: int = 0, seconds: float = 0) -> None:
        super().__init__(server)
        self._times = times
        self._seconds = seconds
        self._lock = threading.Lock()
        self._asked: Counter[tuple[str, str]] = Counter()
        self._until: float | None = None
        #: Number of such answers, by kind.
        self.answered: Counter[str] = Counter()

    def answer(self, request: Request) -> Answer | None:
        whole = f"{request.path}?{request.query}"
        kinds = [
            kind
            for kind, (method, part) in self.KINDS.items()
            if request.method == method and part in whole
        ]
        with self._lock:
            self._asked[request.method, whole] += 1
            is_early = bool(kinds) and self._asked[request.method, whole] <= self._times
            if not is_early and not self._is_in_time(kinds):
                return None
            self.answered.update(kinds or ["other"])
        return Answer(503, f"<Error>{_SLOW_DOWN}</Error>".encode())

    def _is_in_time(self, kinds: list[str]) -> bool:
        now = time.monotonic()
        if self._until is None and self._seconds and "state" in kinds:
            self._until = now + self._seconds
        return self._until is not None and now < self._until


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    answers: OwnAnswers
    to: str

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        url = urlsplit(self.path)
        request = Request(self.command, unquote(url.path), unquote(url.query), body)
        own = self.answers.answer(request)
        if own is not None:
            self._answer(own.status, {}, own.body)
            return
        server = HTTPConnection(self.to, timeout=60)
        server.putrequest(self.command, self.path, skip_host=True, skip_accept_encoding=True)
        for name, value in self.headers.items():
            server.putheader(name, value)
        server.endheaders(body)
        answer = server.getresponse()
        self._answer(answer.status, dict(answer.getheaders()), answer.read())
        server.close()

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _pass_on  # noqa: N815

    def _answer(self, status: int, headers: dict[str, str], body: bytes) -> None:
        self.send_response_only(status)
        for name, value in headers.items():
            if name.lower() not in _OF_A_CONNECTION:
                self.send_header(name, value)
        # A HEAD request gets the length of the object.
        length = headers.get("Content-Length") if self.command == "HEAD" else None
        self.send_header("Content-Length", length or str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing of requests."""


def _is_key(element: ElementTree.Element) -> bool:
    return element.tag.rsplit("}", 1)[-1] == "Key"
