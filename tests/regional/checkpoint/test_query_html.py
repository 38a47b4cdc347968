"""A notebook shows where a pipeline stands, whatever its names and errors say."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from pathlib import Path

from holdfast.regions.coordinator import FailedRegion, HistoryRecord
from holdfast.regions.driver.pipeline_query import SHOWN_ATTEMPTS, query_html
from support.regional.hooks import Hooks
from support.regional.restorable import batches, open_pipeline, run

HEAD = ["id", "batch", "outcome", "failed regions", "in-flight rows", "time ms"]


def parsed(page: str) -> tuple[str, list[list[str]]]:
    """The words of the paragraph, and the cells of the table. Fails where tags do not match."""
    element = ET.fromstring(page)  # noqa: S314 - made by the code under test
    (paragraph,) = element.findall("p")
    rows = [["".join(cell.itertext()) for cell in row] for row in element.iter("tr")]
    return " ".join("".join(paragraph.itertext()).split()), rows


def test_a_query_shows_its_checkpoint_and_its_attempts(tmp_path: Path, hooks: Hooks) -> None:
    with open_pipeline(tmp_path, hooks=hooks) as query:
        run(query, batches(1))
        hooks.fail_for("r01", range(1000, 2000))
        run(query, batches(2), first=1)
        said, (head, *rows) = parsed(query._repr_html_())
        assert f"{query.latest.id}, batch 1" in said
        assert "Fell back: r01 at 2." in said
        assert "5 rows in flight" in said
        assert "it runs" in said
        assert head == HEAD
        assert [row[:3] for row in rows] == [
            ["1", "-1", "global"],
            ["2", "0", "global"],
            ["3", "1", "regional"],
        ]
        assert rows[2][3].startswith("r01 at 2: ")
        assert rows[2][4] == "5"
        assert all(int(row[5].replace(",", "")) >= 0 for row in rows)
    assert "it is closed" in parsed(query._repr_html_())[0]


def test_the_newest_attempts_are_shown(tmp_path: Path) -> None:
    count = SHOWN_ATTEMPTS + 2
    with open_pipeline(tmp_path) as query:
        run(query, batches(count))
        _, (_, *rows) = parsed(query._repr_html_())
        assert [row[1] for row in rows] == [str(count - SHOWN_ATTEMPTS + n) for n in range(10)]


def test_what_comes_from_data_is_text(tmp_path: Path) -> None:
    wild = "<script>alert('1 & 2')</script>\x1b[31m"
    record = HistoryRecord(
        id=1,
        batch_id=0,
        kind="checkpoint",
        outcome="aborted",
        failed=(FailedRegion(region=wild, origin=None, cause="<b>"),),
        in_flight_rows=0,
        cause="</td>",
        started_ms=0,
        ended_ms=1234,
    )
    with open_pipeline(tmp_path) as query:
        page = query_html(wild, f"it ended: {wild}", query.latest, [record])
    assert "<script" not in page
    said, (_, row) = parsed(page)
    assert said.count("<script>alert('1 & 2')</script>") == 2
    assert "</td>; <script>" in row[3]
    assert "\x1b" not in page
    assert row[5] == "1,234"
