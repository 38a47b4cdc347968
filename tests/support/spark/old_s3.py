"""Makes an older server of the S3 protocol, without conditional creates, or with late listings.

Tests may act before and after a request.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable
from http.client import HTTPConnection
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import unquote, urlsplit

#: Headers about the connection to this server.
_OWN = {"connection", "expect"}
_LISTED = re.compile(rb"<Contents>.*?<Key>(.*?)</Key>.*?</Contents>", re.DOTALL)

#: Gets verb, path and port of a request.
Watcher = Callable[[str, str, int], bool]


class OldS3:
    """Passes all requests on to a server.

    Parameters
    ----------
    endpoint
        URL of the server, which must check no signatures: they cover the headers.
    has_conditions
        True if it knows the header ``If-None-Match``.

    Attributes
    ----------
    late
        Keys of objects not yet in any listing.
    before, after
        Get a request before and after it changes or reads an object: its verb, the path of the
        object, and the port of the client. The request, or its answer, is lost if they return
        False.
    """

    def __init__(self, endpoint: str, *, has_conditions: bool = False) -> None:
        address = urlsplit(endpoint).netloc
        own = _OWN if has_conditions else _OWN | {"if-none-match"}
        self.late: set[str] = set()
        self.before: Watcher = lambda verb, path, port: True
        self.after: Watcher = self.before
        late, old = self.late, self

        def listed(found: re.Match[bytes]) -> bytes:
            return b"" if found[1].decode() in late else found[0]

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def _pass_on(self) -> None:
                path, port = unquote(urlsplit(self.path).path), self.client_address[1]
                if not old.before(self.command, path, port):
                    self.close_connection = True
                    return
                length = int(self.headers.get("Content-Length") or 0)
                headers = {
                    name: value for name, value in self.headers.items() if name.lower() not in own
                }
                server = HTTPConnection(address, timeout=60)
                server.request(self.command, self.path, self.rfile.read(length), headers)
                answer = server.getresponse()
                body = answer.read()
                server.close()
                if not old.after(self.command, path, port):
                    self.close_connection = True
                    return
                if late and self.command == "GET" and "list-type" in self.path:
                    body = _LISTED.sub(listed, body)
                self.send_response(answer.status, answer.reason)
                for name, value in answer.getheaders():
                    if name.lower() not in ("transfer-encoding", "connection", "content-length"):
                        self.send_header(name, value)
                told = answer.getheader("Content-Length") if self.command == "HEAD" else None
                self.send_header("Content-Length", told or str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def __getattr__(self, name: str) -> Callable[[], None]:
                # The base class calls the method of each verb: do_GET, do_PUT.
                if not name.startswith("do_"):
                    raise AttributeError(name)
                return self._pass_on

            def log_message(self, *_: object) -> None:
                """Say nothing."""

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.endpoint = f"http://127.0.0.1:{self._server.server_address[1]}"
        self._thread = threading.Thread(target=self._server.serve_forever, daemon=True)
        self._thread.start()

    def close(self) -> None:
        """End the server."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()
