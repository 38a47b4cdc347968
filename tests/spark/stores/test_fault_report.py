"""The fault report: its tables are those of its results, and it finds faults that tests plant."""

from __future__ import annotations

import json
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import pairwise
from pathlib import Path

import pytest

from support import environment, program
from support.markdown import with_tables
from support.spark.fault_queries import Rows, aggregated, feed, joined
from support.spark.fault_report import DOCUMENT, FOUND, PARTS, TITLES, cell, of_files, tables
from support.spark.file_faults import LOGS
from support.spark.old_s3 import OldS3
from support.spark.process_faults import (
    ENDED,
    Application,
    Control,
    Tried,
    power_cut,
    wrong_rows,
)
from support.spark.processes import status
from support.spark.watched_s3 import WatchedS3, is_stopped


def test_the_tables_are_made_of_the_results() -> None:
    found = json.loads(FOUND.read_text())
    assert {(one["part"], one["provider"]) for one in found} == {
        (part, provider) for part in PARTS for provider in TITLES
    }
    text = DOCUMENT.read_text()
    assert with_tables(text, tables(found)) == text


def test_no_fault_but_those_of_sparks_own_files_gave_holdfast_wrong_rows() -> None:
    found = json.loads(FOUND.read_text())
    of_holdfast = [one for one in found if one["provider"] == "holdfast"]
    assert of_holdfast
    for one in of_holdfast:
        assert one["kind"] in LOGS or one["outcome"] not in ("wrong", "hangs"), one


def test_a_cell_has_the_worst_first() -> None:
    outcomes = ["right", "wrong", "right", "error"]
    assert cell([{"outcome": outcome} for outcome in outcomes]) == (
        "**wrong rows** 1, error 1, continues 2"
    )


def test_providers_with_the_same_cells_have_one_row() -> None:
    ends = {"default": "right", "rocksdb": "right", "rocksdb-changelog": "right"}

    def rows(of_holdfast: str) -> list[str]:
        found = [
            {"part": "files", "kind": "entry", "fault": "missing", "provider": one, "outcome": end}
            for one, end in (ends | {"holdfast": of_holdfast}).items()
        ]
        return [*of_files(found, "files", ["entry"])][2:]

    assert rows("right") == ["| entry | every provider | continues 1 |"]
    assert rows("error") == [
        "| entry | Spark's providers | continues 1 |",
        "| entry | Holdfast | error 1 |",
    ]


def with_input(number: int) -> Rows:
    """The rows of a batch with one input."""
    return aggregated((number,), (number + 1,))


@pytest.fixture
def says(tmp_path: Path) -> Callable[..., str]:
    """The verdict on a sink that has batches with these rows, of three inputs."""

    def wrong(*batches: Rows, complete: bool = True) -> str:
        for number, rows in enumerate(batches):
            (tmp_path / f"{number}.json").write_text(json.dumps(rows))
        return wrong_rows(tmp_path, "aggregation", 3, complete=complete)

    return wrong


def test_a_batch_may_have_several_inputs(says: Callable[..., str]) -> None:
    assert says(with_input(0), aggregated((1,), (3,))) == ""


def test_a_batch_may_have_an_input_of_one_source_alone(tmp_path: Path) -> None:
    taken = [(0, 0), (1, 0), (1, 1), (3, 3)]
    for number, (before, after) in enumerate(pairwise(taken)):
        (tmp_path / f"{number}.json").write_text(json.dumps(joined(before, after)))
    assert wrong_rows(tmp_path, "join", 3, complete=True) == ""
    assert wrong_rows(tmp_path, "join", 4, complete=True) == "input 3 is in no batch"


def test_an_input_that_is_not_counted_is_found(says: Callable[..., str]) -> None:
    assert says(with_input(0), with_input(0), with_input(2)) == "batch 1"


def test_an_input_that_is_counted_twice_is_found(says: Callable[..., str]) -> None:
    twice = [(key, 2 * n, 2 * total) for key, n, total in with_input(0)]
    assert says(twice, with_input(1), with_input(2)) == "batch 0"


def test_a_query_that_has_ended_has_all_inputs(says: Callable[..., str]) -> None:
    assert says(with_input(0), complete=False) == ""
    assert says(with_input(0)) == "input 1 is in no batch"


def test_a_batch_that_is_missing_is_found(says: Callable[..., str], tmp_path: Path) -> None:
    says(*map(with_input, range(3)))
    (tmp_path / "1.json").unlink()
    assert wrong_rows(tmp_path, "aggregation", 3, complete=True) == "no batch 1"


def test_other_rows_under_a_number_are_found(says: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "1.other").write_text("[]")
    assert says(with_input(0)) == "batch 1 had other rows when it was repeated"


def test_a_power_cut_leaves_what_was_synced(tmp_path: Path) -> None:
    original, before, noted = (tmp_path / name for name in ("original", "before", "noted"))
    folder = original / "checkpoint" / "state"
    folder.mkdir(parents=True)
    (folder / "old").write_text("old")
    shutil.copytree(original, before)
    (folder / "old").write_text("old and new")
    for name in ("synced", "named", "nameless"):
        (folder / name).write_text("content")
    noted.write_text(
        f"sync 5 {folder}/old\n"
        f"sync 7 {folder}/synced\n"
        f"sync 4 {folder}/.staged\n"
        f"name 7 {folder}/named {folder}/.staged\n"
        f"has 7 {folder}/synced\n"
        f"has 7 {folder}/named\n"
        f"sync 0 {folder}\n"
        f"has 7 {folder}/nameless\n"
    )
    left = {}
    for names in (False, True):
        world = Path(shutil.copytree(original, tmp_path / f"{names}"))
        power_cut(world, original, before, noted, names=names)
        left[names] = {path.name: path.read_text() for path in world.rglob("*") if path.is_file()}
    kept = {"old": "old a", "synced": "content", "named": "cont"}
    assert left == {False: kept | {"nameless": ""}, True: kept}


#: Names a file in a thread of its own, while the first thread waits.
NAMING = """
import os, sys, threading

thread = threading.Thread(target=os.rename, args=sys.argv[1:])
thread.start()
thread.join()
"""


def test_a_process_stops_before_a_change_whichever_thread_makes_it(tmp_path: Path) -> None:
    control, folder = Control.made(tmp_path / "control"), tmp_path / "folder"
    folder.mkdir()
    (folder / ".staged").touch()
    control.order("stop", 1, "named", folder)
    names = [str(folder / name) for name in (".staged", "named")]
    more = {"LD_PRELOAD": control.libraries, **control.environment()}
    process = subprocess.Popen([sys.executable, "-c", NAMING, *names], env=environment(more))
    try:
        threads = Path(f"/proc/{process.pid}/task")
        while {status(thread / "stat")[0] for thread in threads.iterdir()} != {"T"}:
            assert process.poll() is None
        assert control.reached() == process.pid
        assert [path.name for path in folder.iterdir()] == [".staged"]
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 0
        assert [path.name for path in folder.iterdir()] == ["named"]
    finally:
        process.kill()
        process.wait()


#: Writes an object by S3's protocol, in one request.
PUT = """
import sys
from http.client import HTTPConnection

connection = HTTPConnection(sys.argv[1])
connection.request("PUT", sys.argv[2], b"content")
connection.getresponse().read()
"""


@pytest.fixture
def written() -> Iterator[tuple[str, list[str]]]:
    """A store that notes the objects that are written, and its address."""
    paths: list[str] = []

    class Handler(BaseHTTPRequestHandler):
        def do_PUT(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            paths.append(self.path)
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}", paths
        server.shutdown()
        thread.join()


def test_a_process_stops_or_ends_before_it_writes_an_object(
    written: tuple[str, list[str]],
) -> None:
    endpoint, paths = written
    control = WatchedS3(Path("/buckets"))
    with closing(OldS3(endpoint, has_conditions=True)) as store:
        store.before = control.before

        def put(name: str) -> subprocess.Popen[bytes]:
            address = store.endpoint.removeprefix("http://")
            return subprocess.Popen([sys.executable, "-c", PUT, address, f"/bucket/world/{name}"])

        control.order("stop", 1, "/state/", Path("/buckets/bucket/world"))
        assert put("state/.staged").wait() == 0
        process = put("state/0")
        while (reached := control.reached()) is None:
            assert process.poll() is None
        assert (reached, is_stopped(reached)) == (process.pid, True)
        assert paths == ["/bucket/world/state/.staged"]
        process.send_signal(signal.SIGCONT)
        assert process.wait() == 0
        assert paths == ["/bucket/world/state/.staged", "/bucket/world/state/0"]

        control.order("kill", 2, "/state/", Path("/buckets/bucket/world"))
        assert [put(f"state/{number}").wait() for number in (1, 2)] == [0, -signal.SIGKILL]
        assert paths[2:] == ["/bucket/world/state/1"]
        assert not control.end()


@pytest.mark.spark
def test_a_power_cut_loses_nothing_of_holdfast_and_without_its_syncs_is_noticed(
    tmp_path: Path,
) -> None:
    control = Control.made(tmp_path / "control")
    inputs, world, before = (tmp_path / name for name in ("inputs", "world", "before"))
    before.mkdir()
    world.mkdir()
    feed(inputs, 0)
    preload = ("--preload", control.libraries)
    with Application("holdfast", tmp_path / "job", *preload, more=control.environment()) as job:
        job.begin("aggregation", inputs, world, f"file://{world}/checkpoint")
        assert job.answer() == ENDED
        feed(inputs, 1)
        outcomes = []
        for name in ("noted.txt", "no-syncs.txt"):
            copy = Path(shutil.copytree(world, tmp_path / f"after-{name}"))
            power_cut(copy, world, before, control.folder / name, names=False)
            job.begin("aggregation", inputs, copy, f"file://{copy}/checkpoint")
            found = Tried("power cut", "", copy).found("aggregation", job.answer(), 2)
            outcomes.append(found["outcome"])
    assert outcomes == ["right", "error"]


@pytest.mark.full
@pytest.mark.spark
def test_a_merged_file_with_a_fault_is_noticed_or_not_needed(tmp_path: Path) -> None:
    results = tmp_path / "results.jsonl"
    job = [sys.executable, program("spark/fault_report_job.py"), "holdfast", str(tmp_path)]
    chosen = ["--query=aggregation", "--only=Holdfast: hf"]
    subprocess.run([*job, str(results), *chosen], env=environment(), check=True, timeout=400)
    found = [json.loads(line) for line in results.read_text().splitlines()]
    assert {one["outcome"] for one in found} <= {"right", "error"}
    assert any(one["outcome"] == "error" and one["fault"] == "missing" for one in found)
