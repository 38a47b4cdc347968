"""The browser of the tests itself."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.browser import BrowserError, browser_or_skip, pixels_of


def test_a_complaint_and_a_request_of_a_page_are_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    with browser_or_skip() as browser:
        page.write_text(
            "<p>text<img src='http://127.0.0.1:9/x.png'><script>console.log('a')</script>"
        )
        seen = browser.open(page)
        assert seen.requests == [page.as_uri(), "http://127.0.0.1:9/x.png"]
        assert len(seen.complaints) == 2
        page.write_text("<p style='width: 5000px'>text")
        assert browser.open(page).overflow > 1_000
        page.write_text("")
        assert len(set(pixels_of(browser.open(page).thumbnail))) == 1
        with pytest.raises(BrowserError):
            browser.open(tmp_path / "missing.html")
