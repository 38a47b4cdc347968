"""Pages of ``holdfast show --html`` of real checkpoints, opened in a real browser."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.cli.main import main
from support import TESTS
from support.browser import Browser, Shown, browser_or_skip, read_page
from support.regional.hooks import Hooks
from support.regional.pipelines import rows_of
from support.regional.restorable import batches, open_pipeline, run

STATE = TESTS / "fixtures" / "state-v3"


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browser_or_skip() as running:
        yield running


def shown(browser: Browser, folder: Path) -> Shown:
    page = folder / "page.html"
    assert main(["show", str(folder / "ckpt"), "--html", str(page)]) == 0
    return read_page(browser, page)


def rows(page: Shown, *head: str) -> list[list[str]]:
    (found,) = [table[1:] for table in page.tables if table[0][: len(head)] == [*head]]
    return found


def pictures(page: Shown) -> list[str]:
    return [name for role, name in page.names if role == "image"]


def test_a_pipeline_with_a_failing_region(browser: Browser, tmp_path: Path) -> None:
    hooks, made = Hooks(), batches(6)
    with open_pipeline(tmp_path, hooks=hooks) as query:
        run(query, made[:2])
        hooks.fail_for("r01", range(2_000, 5_000))
        run(query, made[:5], first=2)
        hooks.calm()
        run(query, made, first=5)
    page = shown(browser, tmp_path)
    assert [row[:4] for row in rows(page, "region", "failed attempts")] == [
        ["r01", "4", "4", "4 to 7"]
    ]
    outcomes = [row[3] for row in rows(page, "id", "batch", "kind", "outcome")]
    failed = ["regional", "aborted", "regional", "regional"]
    assert outcomes == ["global", *failed, *["global"] * 3]
    assert "Timeline of 8 attempts: 4 global, 3 regional, 1 aborted." in pictures(page)
    # Words of the picture are on the page.
    for said in ("time in ms, by outcome", "rows in flight", "regions that failed"):
        assert said in page.text
    (file,) = rows(page, "file")
    live, dead = (int(cell.replace(",", "")) for cell in file[2:4])
    size = (tmp_path / "ckpt" / "segments" / file[0]).stat().st_size
    assert (live + dead, live > 0, dead > 0) == (size, True, True)
    assert any(re.fullmatch(r"[\d.]+ K?i?B live, [\d.]+ K?i?B dead", one) for one in pictures(page))


def test_what_a_region_is_called_does_nothing(browser: Browser, tmp_path: Path) -> None:
    wild = "<script>document.title = 'taken'</script><img src=http://127.0.0.1:9/x onerror=alert()>"
    hooks = Hooks()
    hooks.fail_for(wild, range(1_000, 2_000))
    with open_pipeline(tmp_path, hooks=hooks) as query:
        run(query, [rows_of(number, [wild, *"abc"]) for number in range(2)])
    page = shown(browser, tmp_path)
    assert rows(page, "region", "state")[0][0] == wild
    assert ("RootWebArea", "Regional pipeline: pipeline") in page.names


def test_the_state_of_a_query(browser: Browser, tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    (folder / "offsets").mkdir(parents=True)
    (folder / "commits").mkdir()
    (folder / "metadata").write_text('{"id":"defe868c-b6a8-4221-ae10-d348ec3c6041"}')
    for batch, id in enumerate((STATE / "ids.txt").read_text().split()):
        state = {"stateUniqueIds": {"0": [[], [], [], [id]]}}
        (folder / "commits" / str(batch)).write_text(f"v2\n{json.dumps(state)}")
    shutil.copytree(STATE / "intact", folder / "state" / "holdfast")
    page = shown(browser, tmp_path)
    assert [row[0] for row in rows(page, "batch")] == ["5", "4", "3", "2", "1", "0"]
    assert rows(page, "operator")[0][:5] == ["0", "3", "default", "6", "4"]
    assert "Bytes written for batches 0 to 5." in pictures(page)


def test_a_complaint_and_a_request_of_a_page_are_seen(browser: Browser, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    page.write_text("<p>text<img src='http://127.0.0.1:9/x.png'><script>console.log('a')</script>")
    seen = browser.open(page)
    assert seen.requests == [page.as_uri(), "http://127.0.0.1:9/x.png"]
    assert len(seen.complaints) == 2
    with pytest.raises(AssertionError):
        read_page(browser, page)
    page.write_text("<p style='width: 5000px'>text")
    assert browser.open(page).overflow > 1_000
    with pytest.raises(AssertionError):
        read_page(browser, page)
    page.write_text("")
    with pytest.raises(AssertionError, match="the picture is blank"):
        read_page(browser, page)
