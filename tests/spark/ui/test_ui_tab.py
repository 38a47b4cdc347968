"""The Holdfast tab of Spark's UI and of the History Server, in a real browser."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from holdfast._jars import SPARK_MINORS, plugin_jars
from support.browser import Browser, Shown, browser_or_skip, pixels_of
from support.regional.pipelines import rows_of
from support.spark.minors import INSTALLED
from support.spark.queries import write_batch
from support.spark.regional_input import write_rows
from support.spark.ui import Application, application, fetched, headers_of, history_server

pytestmark = pytest.mark.versions

BATCHES = 8
#: A name that is markup, and one that reads the other way round.
QUERY = "counts <b>by</b> key \u202e"
REGION = "r1<img src=http://127.0.0.1:9/x onerror=alert()>"
CAUSE = "no flight</div><script>document.title = 'taken'</script> departs"
REGIONS = ["r0", REGION, "r2", "r3"]


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with browser_or_skip() as running:
        yield running


def opened(browser: Browser, address: str, *, dark: bool = False) -> Shown:
    """A page that is sound: it complains of nothing, and asks for nothing from elsewhere."""
    page = browser.open(address, dark=dark)
    server = address.split("/holdfast/")[0].split("/history/")[0]
    own = (f"{server}/", "data:image/svg+xml,")
    assert [request for request in page.requests if not request.startswith(own)] == []
    assert page.complaints == []
    assert page.overflow <= 0
    assert len(set(pixels_of(page.thumbnail))) > 50, "the picture is blank"
    return page


def lines(page: Shown, *head: str) -> list[list[str]]:
    (found,) = [table[1:] for table in page.tables if table[0][: len(head)] == [*head]]
    return found


def column(page: Shown, name: str, *head: str) -> list[str]:
    (found,) = [table for table in page.tables if table[0][: len(head)] == [*head]]
    return [line[found[0].index(name)] for line in found[1:]]


def pictures(page: Shown) -> list[str]:
    return [name for role, name in page.names if role == "image"]


def start_of(page: str, name: str) -> str:
    """The link of the overview to a start whose name begins so, as markup has it."""
    found = re.search(rf'<a href="([^"]*/start/[^"]*)">{re.escape(name)}', page)
    assert found is not None, page
    return found[1]


def until(condition: Callable[[], bool]) -> None:
    """Wait for what other threads do."""
    deadline = time.monotonic() + 120
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.1)


@dataclass
class Seen:
    """An application that ran a query and a pipeline, and its pages while it did."""

    folder: Path
    id: str = ""
    pages: dict[str, Shown] = field(default_factory=dict)
    headers: dict[str, str] = field(default_factory=dict)
    addresses: dict[str, str] = field(default_factory=dict)
    progress: list[dict[str, Any]] = field(default_factory=list)
    log: str = ""

    @property
    def events(self) -> Path:
        return self.folder / "events"


@pytest.fixture(scope="module")
def seen(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Seen:
    seen = Seen(tmp_path_factory.mktemp("ui"))
    for name in ("events", "counts", "plain", "bad"):
        (seen.folder / name).mkdir()
    for number in range(BATCHES):
        keys = [key * (number % 3 + 1) for key in range(300)]
        write_batch(seen.folder / "counts", number, [{"key": key} for key in keys])
    write_batch(seen.folder / "plain", 0, [{"key": 1}])
    write_batch(seen.folder / "bad", 0, [{"key": key % 100} for key in range(200)])
    for number in range(5):
        write_rows(seen.folder / "flights", number, rows_of(number, REGIONS))
    logged = {
        "spark.eventLog.enabled": "true",
        "spark.eventLog.dir": seen.events.as_uri(),
    }
    with application(seen.folder, logged) as running:
        seen.id = running.id
        root = f"{running.url}/holdfast/"
        seen.pages["empty"] = opened(browser, root)
        seen.headers = headers_of(root)
        run = running.ask("query", "counts", QUERY)
        running.ask("stateless", "plain")
        for name in ("counts", "plain"):
            running.ask("drain", name)
        running.ask("pipeline", "flights", REGION, CAUSE)
        running.ask("sets_aside", "bad")
        running.ask("drain", "bad")
        seen.progress = running.ask("progress", "counts")
        query = f"{root}start/?run={run}"
        until(lambda: "Clean-ups" in fetched(query))
        running.ask("settle")
        overview = fetched(root)
        seen.addresses = {
            "overview": root,
            "query": start_of(overview, "counts"),
            "pipeline": start_of(overview, "flights"),
            "bad": start_of(overview, "bad"),
        }
        assert seen.addresses["query"] == f"/holdfast/start/?run={run}"
        for name in ("overview", "query", "pipeline", "bad"):
            address = seen.addresses[name].removeprefix(running.url)
            seen.pages[name] = opened(browser, running.url + address)
        seen.pages["dark"] = opened(browser, query, dark=True)
        seen.pages["unknown"] = opened(browser, f"{root}start/?run=other")
        running.ask("stop", "counts")
        running.ask("end")
        seen.log = running.log.read_text()
    return seen


def test_an_application_without_a_batch_says_what_to_set(seen: Seen) -> None:
    page = seen.pages["empty"]
    assert "No query with state in Holdfast has ended a batch" in page.text
    assert [line[0] for line in lines(page, "setting")] == [
        "spark.sql.streaming.stateStore.holdfast.default",
        "spark.sql.streaming.stateStore.checkpointFormatVersion",
        "spark.sql.streaming.checkpointFileManagerClass",
    ]
    assert "is not known here" in seen.pages["unknown"].text


def test_the_overview_has_queries_with_state_in_holdfast_and_pipelines(seen: Seen) -> None:
    page = seen.pages["overview"]
    bad, query = sorted(lines(page, "query", "state"))
    assert bad[:2] == ["bad", "running"]
    shown = "counts <b>by</b> key \\u202e"
    assert query[:2] == [shown, "running"]
    assert set(column(page, "batch", "query")) == {"0", str(BATCHES - 1)}
    assert set(column(page, "keys", "query")) == {"0", "600"}
    assert set(column(page, "bad rows", "query")) == {"0", "2"}
    assert max(column(page, "files", "query")) > "0"
    (pipeline,) = lines(page, "pipeline", "state")
    assert pipeline[:2] == ["flights", "ended"]
    assert column(page, "regional", "pipeline") == ["2"]
    assert "Holdfast tab" not in seen.log, "no warning"


def test_a_query_shows_what_its_progress_says(seen: Seen) -> None:
    page = seen.pages["query"]
    assert "Query counts <b>by</b> key" in page.text
    wanted = {
        "keys": lambda operator: operator["numRowsTotal"],
        "loads": lambda operator: operator["customMetrics"]["holdfastLoads"],
        "cold reads": lambda operator: operator["customMetrics"]["holdfastColdReads"],
        "runs": lambda operator: operator["customMetrics"]["holdfastRuns"],
        "unmerged": lambda operator: operator["customMetrics"]["holdfastUnmerged"],
        "changelogs": lambda operator: operator["customMetrics"]["holdfastChangelogs"],
        "files created": lambda operator: operator["customMetrics"]["holdfastFilesCreated"],
    }
    of_batches = ("batch", "ended")
    newest_first = [str(number) for number in reversed(range(BATCHES))]
    assert column(page, "batch", *of_batches) == newest_first
    operators = [one["stateOperators"][0] for one in reversed(seen.progress)]
    for name, figure in wanted.items():
        assert column(page, name, *of_batches) == [f"{figure(one):,}" for one in operators], name
    assert set(column(page, "changelogs", *of_batches)) == {"2"}
    names = pictures(page)
    for title in ("Bytes stored", "Live share of closed files", "Loads", "Cold reads", "Keys"):
        assert [name for name in names if name.startswith(f"{title}, batches 0 to 7: at most ")]


def test_a_query_without_state_shows_its_bad_rows(seen: Seen) -> None:
    page = seen.pages["bad"]
    assert column(page, "bad rows", "batch", "ended") == ["2"]
    assert pictures(page)[0] == "Bad rows, batches 0 to 0: at most 2, 2 in the last"
    assert "Stores" not in page.text


def test_clean_ups_tell_how_many_files_are_left_and_what_is_live(seen: Seen) -> None:
    page = seen.pages["query"]
    cleaned = lines(page, "after batch")
    # One may be left out while another still runs.
    assert {line[0] for line in cleaned} <= {"5", "2"}
    assert all(int(line[2]) >= 1 and line[3] != "0 B" for line in cleaned)
    assert [line[6] for line in cleaned if line[4] != "0 B"] == [
        f"{round(100 * (size(line[4]) - size(line[5])) / size(line[4]))} %"
        for line in cleaned
        if line[4] != "0 B"
    ]


def size(text: str) -> float:
    """Bytes that were written as a reader likes them."""
    figure, unit = text.split()
    return float(figure) * 1024 ** ["B", "KiB", "MiB"].index(unit)


def test_a_pipeline_shows_its_checkpoints_and_the_regions_that_failed(seen: Seen) -> None:
    page = seen.pages["pipeline"]
    attempts = ("id", "batch", "kind", "outcome")
    outcomes = list(reversed(column(page, "outcome", *attempts)))
    assert outcomes[1:] == ["global", "regional", "regional", "global", "global"]
    assert column(page, "in-flight rows", *attempts)[:5] == ["0", "0", "10", "5", "0"]
    (failed,) = lines(page, "region")
    assert failed == [REGION, "2", "4", f"RuntimeError: {CAUSE}"]
    told = column(page, "failed regions", *attempts)
    assert told[2] == told[3] == f"{REGION} at 2: RuntimeError: {CAUSE}"
    assert "Regions that failed, attempts 1 to 6: at most 1, 0 in the last" in pictures(page)


def test_the_tab_follows_the_theme_of_sparks_ui(seen: Seen) -> None:
    light, dark = (
        sum(map(sum, pixels_of(seen.pages[name].thumbnail))) for name in ("query", "dark")
    )
    if INSTALLED in ("4.0", "4.1"):
        assert light == pytest.approx(dark, rel=0.05), "Spark has one theme"
    else:
        assert light > 2 * dark
    assert lines(seen.pages["dark"], "batch") == lines(seen.pages["query"], "batch")


def in_history(browser: Browser, seen: Seen, server: str) -> dict[str, Shown]:
    """The pages of the application in the History Server."""
    base = f"{server}/history/{seen.id}"

    def is_there() -> bool:
        return seen.id in fetched(f"{server}/api/v1/applications")

    until(is_there)
    # It reads the event log for the first page that is asked for.
    overview = fetched(f"{base}/holdfast/")
    assert start_of(overview, "flights").startswith(f"/history/{seen.id}/holdfast/start/")
    return {
        "overview": opened(browser, f"{base}/holdfast/"),
        "query": opened(browser, server + start_of(overview, "counts")),
        "pipeline": opened(browser, server + start_of(overview, "flights")),
        "bad": opened(browser, server + start_of(overview, "bad")),
    }


@pytest.mark.parametrize("kept", ["in memory", pytest.param("on disk", marks=pytest.mark.full)])
def test_the_history_server_shows_the_same(
    browser: Browser, seen: Seen, tmp_path: Path, kept: str
) -> None:
    settings = {"store.path": str(tmp_path / "store")} if kept == "on disk" else {}
    # That of the classes alone: the server needs no native library.
    jar = str(plugin_jars()[0])
    # On disk a second server finds what the first one made of the event log.
    for _ in range(1 if kept == "in memory" else 2):
        with history_server(tmp_path, seen.events, settings, jar) as server:
            pages = in_history(browser, seen, server)
        assert set(column(pages["overview"], "state", "query")) == {"ended"}
        for name, head in [
            ("query", "batch"),
            ("bad", "batch"),
            ("pipeline", "id"),
            ("pipeline", "region"),
        ]:
            assert lines(pages[name], head) == lines(seen.pages[name], head), (name, head)
        # The newest first: a clean-up may have ended after the page was opened.
        cleaned = lines(seen.pages["query"], "after batch")
        assert lines(pages["query"], "after batch")[-len(cleaned) :] == cleaned
        assert len(pictures(pages["query"])) == len(pictures(seen.pages["query"]))


@pytest.mark.full
def test_a_history_server_without_the_jar_shows_all_else(
    browser: Browser, seen: Seen, tmp_path: Path
) -> None:
    with history_server(tmp_path, seen.events, {}, "") as server:
        until(lambda: seen.id in fetched(f"{server}/api/v1/applications"))
        base = f"{server}/history/{seen.id}"
        page = opened(browser, f"{base}/jobs/")
        assert "Structured Streaming" in page.text
        assert "Holdfast" not in [name for role, name in page.names if role == "link"]
        assert "counts" in fetched(f"{base}/StreamingQuery/")
        (log,) = tmp_path.glob("history-*.log")
        # It names each class once, and goes on.
        dropped = re.findall(r"Drop unrecognized event: \S*UiEvents\$(\w+)", log.read_text())
        assert len(dropped) == len(set(dropped)) > 0


@pytest.mark.full
def test_a_history_server_with_the_jar_for_another_spark_shows_all_else(
    seen: Seen, tmp_path: Path
) -> None:
    other = next(minor for minor in SPARK_MINORS if minor != INSTALLED)
    jar = str(plugin_jars(spark=other)[0])
    with history_server(tmp_path, seen.events, {}, jar) as server:
        until(lambda: seen.id in fetched(f"{server}/api/v1/applications"))
        assert "/holdfast/" not in fetched(f"{server}/history/{seen.id}/jobs/")
        (log,) = tmp_path.glob("history-*.log")
        assert f"built for Spark {other}" in log.read_text()


def test_pages_are_behind_the_filters_of_sparks_ui(seen: Seen) -> None:
    # The filter that sets it also asks whether a user may see the application.
    assert seen.headers["X-Frame-Options"] == "SAMEORIGIN"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Input of three queries with five batches each."""
    folder = tmp_path_factory.mktemp("bounds")
    for name in "abc":
        (folder / name).mkdir()
        for number in range(5):
            write_batch(folder / name, number, [{"key": number}])
    return folder


def run(running: Application, name: str) -> None:
    running.ask("query", name)
    running.ask("drain", name)


@pytest.mark.full
def test_the_newest_stay_as_many_as_spark_keeps_and_each_context_begins_anew(
    folder: Path,
) -> None:
    few = {
        "spark.sql.streaming.ui.retainedQueries": "1",
        "spark.sql.streaming.ui.retainedProgressUpdates": "3",
    }
    with application(folder, few) as running:
        for name in "abc":
            run(running, name)
        for name in "ab":
            running.ask("stop", name)
        page = fetched(f"{running.url}/holdfast/")
        assert re.findall(r"/start/[^>]*>(\w)</a>", page) == ["c", "b"]
        query = fetched(running.url + start_of(page, "c"))
        assert "The newest 3, the newest first." in query
        assert len(re.findall(r"<title>batch \d: \d+</title>", query)) == 3 * 4
        assert "batch 4" in query
        assert "batch 1" not in query

        # Behind a proxy links have the path that it says.
        proxied = fetched(f"{running.url}/holdfast/", {"X-Forwarded-Context": "/proxy/here"})
        assert start_of(proxied, "c").startswith("/proxy/here/holdfast/start/")

        # What cannot be shown harms nothing.
        running.ask("misinform")
        write_batch(folder / "c", 5, [{"key": 5}])
        running.ask("drain", "c")
        assert "batch 5" in fetched(running.url + start_of(page, "c"))
        (warning,) = re.findall("WARN StatusListener: (.*)", running.log.read_text())
        assert warning.startswith("The Holdfast tab of Spark's UI does not show everything")

        running.again({})
        assert "No query with state" in fetched(f"{running.url}/holdfast/")
        (folder / "d").mkdir()
        write_batch(folder / "d", 0, [{"key": 0}])
        run(running, "d")
        page = fetched(f"{running.url}/holdfast/")
        assert re.findall(r"/start/[^>]*>(\w)</a>", page) == ["d"]

        # Without a UI there is no tab, and all else is as it was.
        running.again({"spark.ui.enabled": "false"})
        assert running.url is None
        (folder / "e").mkdir()
        write_batch(folder / "e", 0, [{"key": 0}])
        run(running, "e")
        assert running.ask("progress", "e")[0]["stateOperators"][0]["numRowsTotal"] == 1
