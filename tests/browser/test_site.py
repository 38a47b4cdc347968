"""Pictures of the documentation are drawn without a network."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support import TESTS
from support.browser import Browser, browser_or_skip

ROOT = TESTS.parent
SCRIPT = Path("build/mermaid/node_modules/@mermaid-js/tiny/dist/mermaid.tiny.js")

#: The variable of docs/mermaid/draw.js that says when all pictures are drawn.
DRAWN = "drawing"

_PICTURE = re.compile(r"^```mermaid$", re.MULTILINE)
_TITLE = re.compile(r"^ *accTitle: (.+)$", re.MULTILINE)


def pages_with_pictures() -> list[Path]:
    """Return the documents with pictures, relative to the repository."""
    pages = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").rglob("*.md"))]
    return [page.relative_to(ROOT) for page in pages if _PICTURE.search(page.read_text())]


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the pages with pictures, and no other."""
    subprocess.run(["make", "build/mermaid/node_modules"], cwd=ROOT, check=True)
    if not (ROOT / SCRIPT).exists():
        pytest.skip("npm could not fetch Mermaid")
    built = tmp_path_factory.mktemp("site")
    pages = ",".join(map(str, pages_with_pictures()))
    options = ["-D", f"include_patterns={pages}", "-D", "root_doc=ARCHITECTURE"]
    command = [sys.executable, "-m", "sphinx", "-q", "-c", "docs", *options, ".", str(built)]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return built


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browser_or_skip() as running:
        yield running


@pytest.mark.full
@pytest.mark.parametrize("page", pages_with_pictures(), ids=str)
@pytest.mark.parametrize("dark", [False, True])
def test_every_picture_of_a_page_is_drawn_from_its_files(
    page: Path, dark: bool, site: Path, browser: Browser
) -> None:
    text = (ROOT / page).read_text()
    shown = browser.open(site / page.with_suffix(".html"), dark=dark, until=DRAWN)
    assert shown.complaints == []
    assert {address.partition(":")[0] for address in shown.requests} <= {"file", "data"}
    named = {name for _, name in shown.names}
    titles = _TITLE.findall(text)
    assert len(titles) == len(_PICTURE.findall(text)) > 0
    assert set(titles) <= named
