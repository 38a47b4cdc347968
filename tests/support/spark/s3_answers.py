"""A server of the S3 protocol that refuses to delete objects of some names, like a policy."""

from __future__ import annotations

import threading
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import TracebackType
from typing import Final, Self
from urllib.parse import unquote, urlsplit
from xml.etree import ElementTree

from support.spark.object_stores import S3Server

_NAMESPACE: Final = "http://s3.amazonaws.com/doc/2006-03-01/"
_REFUSAL: Final = "<Code>AccessDenied</Code><Message>Access Denied</Message>"
#: Headers of one connection, not of its content; the length of an answer is set again.
_OF_A_CONNECTION: Final = ("connection", "transfer-encoding", "content-length")


class RefusedDeletes:
    """Passes requests on to a server, except deletes of objects with given names.

    A request to delete several deletes the others, and answers for each.

    Parameters
    ----------
    server
        The server; other objects of a request with refused ones are deleted in its folder.
    """

    def __init__(self, server: S3Server) -> None:
        self.names: frozenset[str] = frozenset()
        self.refused = 0
        target = urlsplit(server.settings["fs.s3a.endpoint"]).netloc
        buckets = server.folder / "buckets"
        outer = self

        class Handler(_Handler):
            refusals = outer
            to = target
            folder = buckets

        self._listener = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.endpoint = f"http://127.0.0.1:{self._listener.server_port}"

    def refuse(self, *names: str) -> None:
        """Refuse to delete objects of these names from now on, and no others."""
        self.names = frozenset(names)

    def is_refused(self, key: str) -> bool:
        """True if an object stays; counts these."""
        stays = key.rsplit("/", 1)[-1] in self.names
        self.refused += stays
        return stays

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


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    refusals: RefusedDeletes
    to: str
    folder: Path

    def _pass_on(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        path = unquote(urlsplit(self.path).path)
        if self.command == "DELETE" and self.refusals.is_refused(path):
            self._answer(403, {}, f"<Error>{_REFUSAL}</Error>".encode())
            return
        if self.command == "POST" and urlsplit(self.path).query == "delete":
            self._answer(200, {}, self._delete(path.strip("/"), body))
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

    def _delete(self, bucket: str, body: bytes) -> bytes:
        wanted = [key.text or "" for key in ElementTree.fromstring(body).iter() if _is_key(key)]  # noqa: S314
        said = []
        for key in wanted:
            if self.refusals.is_refused(key):
                said.append(f"<Error><Key>{key}</Key>{_REFUSAL}</Error>")
            else:
                (self.folder / bucket / key).unlink(missing_ok=True)
                said.append(f"<Deleted><Key>{key}</Key></Deleted>")
        return f'<DeleteResult xmlns="{_NAMESPACE}">{"".join(said)}</DeleteResult>'.encode()

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
