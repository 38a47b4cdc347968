"""Pages of the history: what is written, what is read, and what becomes of damaged ones."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from holdfast.files.mounted import MountedPath
from holdfast.files.reached import HadoopPath, Status
from holdfast.regions.base.clock import Clock
from holdfast.regions.checkpoint import history as pages
from holdfast.regions.checkpoint.history import (
    DAY_MS,
    HistoryLog,
    encoded,
    list_pages,
    read_history,
)
from holdfast.regions.coordinator import FailedRegion, HistoryRecord
from holdfast.regions.files.folders import CheckpointFolders

FIXTURE = Path(__file__).resolve().parents[2] / "fixtures" / "history-v1"
NOW_MS = 1_700_000_000_000


class SetClock(Clock):
    """A clock that tests set."""

    def __init__(self, ms: int = NOW_MS) -> None:
        super().__init__()
        self.ms = ms

    def now_ms(self) -> int:
        return self.ms


def record(id: int, outcome: Any = "global", **more: Any) -> HistoryRecord:
    fields = {
        "batch_id": id - 2,
        "kind": "checkpoint",
        "failed": (),
        "in_flight_rows": 0,
        "cause": "",
        "started_ms": NOW_MS,
        "ended_ms": NOW_MS + 5,
    }
    return HistoryRecord(id=id, outcome=outcome, **(fields | more))


def opened(root: Any, *, run: str = "a", days: int = 7, clock: Clock | None = None) -> HistoryLog:
    return HistoryLog(CheckpointFolders(root), run=run, days=days, clock=clock or SetClock())


def ids(log: HistoryLog, **more: Any) -> list[int]:
    return [one.id for one in log.records(**more)]


def names(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "history").iterdir())


def test_version_1_reads_back() -> None:
    found = read_history(MountedPath(FIXTURE))
    run = "5c1f0c9cf4a947f5a7c5e7f0ad54bb0b"
    disk = FailedRegion(region="wäst\n", origin=1, cause="OSError: \x1b[31mdisk")
    expired = FailedRegion(region="east", origin=None, cause="expired")
    assert found.damage == ()
    assert found.records == (
        record(1, ended_ms=NOW_MS + 12, run=run),
        record(
            2,
            "regional",
            failed=(disk,),
            unnamed=3,
            in_flight_rows=42,
            started_ms=NOW_MS + 1_000,
            ended_ms=NOW_MS + 1_250,
            run=run,
        ),
        record(
            3,
            "aborted",
            kind="final",
            failed=(expired,),
            cause="a region declined",
            started_ms=NOW_MS + 2_000,
            ended_ms=NOW_MS + 4_000,
            run=run,
        ),
    )
    lines = (FIXTURE / "0000000000000001.jsonl").read_bytes().splitlines(keepends=True)
    assert [encoded(one) for one in found.records] == lines[:3]


def test_every_run_begins_a_page_and_none_is_appended_to_by_another(tmp_path: Path) -> None:
    first = opened(tmp_path)
    first.note(record(1))
    before = (tmp_path / "history" / names(tmp_path)[0]).read_bytes()
    second = opened(tmp_path, run="b")  # the first one was killed
    second.note(record(2))
    assert names(tmp_path) == ["0000000000000001.jsonl", "0000000000000002.jsonl"]
    assert (tmp_path / "history" / names(tmp_path)[0]).read_bytes() == before
    assert [(one.id, one.run) for one in second.records()] == [(1, "a"), (2, "b")]
    assert ids(second, last=1) == [2]
    first.close()
    second.close()


def test_a_run_without_attempts_leaves_no_page(tmp_path: Path) -> None:
    opened(tmp_path).close()
    assert not (tmp_path / "history").exists()


def test_a_full_page_is_followed_by_another(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 2 * len(encoded(record(1, run="a"))) + 1)
    log = opened(tmp_path)
    for id in range(1, 9):
        log.note(record(id))
    assert len(names(tmp_path)) == 3
    assert ids(log) == [*range(1, 9)]
    assert ids(log, last=4) == [5, 6, 7, 8]
    monkeypatch.setattr(pages, "PAGE_BYTES", 2_000)
    other = opened(tmp_path, run="b")
    for id in range(9, 13):
        other.note(record(id, "aborted", cause="x" * 500))
    assert len(names(tmp_path)) == 5
    assert ids(other) == [*range(1, 13)]


def test_very_many_failed_regions_are_counted_and_long_causes_cut(tmp_path: Path) -> None:
    failed = [FailedRegion(region=f"r{n}", origin=1, cause="x" * 9_999) for n in range(1_500)]
    log = opened(tmp_path)
    log.note(record(2, "regional", failed=tuple(failed)))
    (found,) = read_history(tmp_path / "history").records
    assert found == log.records()[0]
    assert (len(found.failed), found.unnamed) == (100, 1_400)
    assert found.failed[0].cause == "x" * 499 + "…"


def test_a_line_that_a_crash_tore_is_left_out(tmp_path: Path) -> None:
    log = opened(tmp_path)
    log.note(record(1))
    log.note(record(2))
    page = tmp_path / "history" / names(tmp_path)[0]
    content = page.read_bytes()
    first = content.index(b"\n") + 1
    for length in range(len(content)):
        page.write_bytes(content[:length])
        found = read_history(tmp_path / "history")
        assert found.damage == ()
        assert [one.id for one in found.records] == ([1] if length >= first else [])


@pytest.mark.parametrize(
    ("line", "wrong"),
    [
        (b"\0\0\0", "line 1"),
        (b"[]", "expected an object, found list"),
        (b'{"version":2}', "a line of the history: this build reads up to version 1, found 2: a"),
        (b'{"version":1}', "expected 'run' of type str, found None"),
        (b"[" * 100_000, "line 1"),
        (b'"\xff"', "line 1"),
        (encoded(record(7)).strip().replace(b'"global"', b'"fine"'), "no attempt is of kind"),
        (encoded(record(7)).strip().replace(b'"batch":5', b'"batch":true'), "'batch' of type int"),
    ],
    ids=range(8),
)
def test_damage_is_reported_and_the_rest_is_read(tmp_path: Path, line: bytes, wrong: str) -> None:
    log = opened(tmp_path)
    log.note(record(1))
    log.close()
    folder = tmp_path / "history"
    good = (folder / "0000000000000001.jsonl").read_bytes()
    (folder / "0000000000000002.jsonl").write_bytes(line + b"\n" + good.replace(b'"a"', b'"b"'))
    (folder / "notes.txt").write_text("of the user")
    found = read_history(folder)
    assert [one.run for one in found.records] == ["a", "b"]
    (damage,) = found.damage
    assert wrong in damage
    assert damage.startswith(f"{folder / '0000000000000002.jsonl'}, line 1: ")


def test_pages_that_are_too_old_are_deleted_with_a_new_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = SetClock()
    opened(tmp_path, clock=clock).note(record(1))
    clock.ms = NOW_MS + 2 * DAY_MS
    log = opened(tmp_path, run="b", days=2, clock=clock)
    log.note(record(2, ended_ms=clock.ms))
    assert len(names(tmp_path)) == 2
    assert ids(log) == [1, 2]
    clock.ms += DAY_MS
    # No longer told of, although its page still is there.
    assert ids(log) == [2]
    monkeypatch.setattr(pages, "PAGE_BYTES", 1)
    log = opened(tmp_path, run="c", days=2, clock=clock)
    log.note(record(3, ended_ms=clock.ms))
    assert names(tmp_path) == ["0000000000000002.jsonl", "0000000000000003.jsonl"]
    clock.ms += 2 * DAY_MS
    log.note(record(4, ended_ms=clock.ms))
    assert names(tmp_path) == ["0000000000000003.jsonl", "0000000000000004.jsonl"]


def test_a_page_that_cannot_be_read_does_not_count_as_old(tmp_path: Path) -> None:
    folder = tmp_path / "history"
    folder.mkdir()
    (folder / "0000000000000001.jsonl").write_text("torn")
    clock = SetClock(NOW_MS + 30 * DAY_MS)
    opened(tmp_path, clock=clock).note(record(1, ended_ms=clock.ms))
    assert len(names(tmp_path)) == 2


def test_the_number_of_pages_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "MAX_PAGES", 3)
    for id in range(1, 7):
        opened(tmp_path, run=str(id)).note(record(id))
    found = [page.name for page in list_pages(tmp_path / "history")]
    assert found == [f"000000000000000{number}.jsonl" for number in (4, 5, 6)]


def test_what_cannot_be_written_stays_in_memory_and_is_written_later(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    blocked = tmp_path / "history"
    blocked.write_text("not a folder")
    log = opened(tmp_path)
    for id in range(1, 1_005):
        log.note(record(id))
    assert ids(log) == [*range(5, 1_005)]
    warnings = [one.getMessage() for one in caplog.records]
    # One a minute, however long that takes.
    assert 0 < sum("the history is not written" in text for text in warnings) < 20
    blocked.unlink()
    log.note(record(1_005))
    assert [one.id for one in read_history(blocked).records] == [*range(6, 1_006)]
    assert ids(log) == [*range(6, 1_006)]


def test_a_line_that_was_written_in_part_ends_its_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = opened(tmp_path)
    log.note(record(1))
    whole = pages.encoded

    def full_disk(record: HistoryRecord) -> bytes:
        (page,) = (tmp_path / "history").iterdir()
        with page.open("ab") as file:
            file.write(whole(record)[:10])
        raise OSError("no space left")

    with monkeypatch.context() as patched:
        patched.setattr(pages, "encoded", full_disk)
        log.note(record(2))
    log.note(record(3))
    assert names(tmp_path) == ["0000000000000001.jsonl", "0000000000000002.jsonl"]
    found = read_history(tmp_path / "history")
    assert [one.id for one in found.records] == ids(log) == [1, 2, 3]
    assert found.damage == ()


# --- file systems that only the JVM reaches -------------------------------------------------------


class Remote(HadoopPath):
    """A folder on a file system without append, which counts requests and may refuse them."""

    files: dict[str, bytes]
    requests: list[str]
    refuses: bool

    def __init__(self, uri: str, shared: Remote | None = None) -> None:
        super().__init__(uri)
        self.shared = shared or self
        if shared is None:
            self.files, self.requests, self.refuses = {}, [], False

    def __truediv__(self, name: Any) -> Remote:
        return Remote(f"{self}/{name}", self.shared)

    def _ask(self, what: str) -> None:
        self.shared.requests.append(what)
        if self.shared.refuses:
            raise ConnectionError("away")

    def entries(self) -> list[tuple[HadoopPath, Status]]:
        self._ask("list")
        return [
            (Remote(name, self.shared), Status(False, len(content), NOW_MS))
            for name, content in sorted(self.shared.files.items())
        ]

    def unlink(self, *, missing_ok: bool = False) -> None:
        self._ask("delete")
        del self.shared.files[str(self)]

    def read_bytes(self) -> bytes:
        self._ask("read")
        return self.shared.files[str(self)]

    def create(self, content: bytes) -> None:
        self._ask("create")
        if str(self) in self.shared.files:
            raise FileExistsError
        self.shared.files[str(self)] = content

    def write_bytes(self, content: bytes) -> None:
        self._ask("replace")
        self.shared.files[str(self)] = content


def remote_ids(remote: Remote) -> list[int]:
    return [json.loads(line)["id"] for page in remote.files.values() for line in page.splitlines()]


def test_elsewhere_a_healthy_pipeline_writes_every_half_minute_and_at_the_end() -> None:
    remote, clock = Remote("memory:/ckpt"), SetClock()
    log = opened(remote, clock=clock)
    for id in range(1, 101):  # for 30 seconds
        log.note(record(id))
        clock.ms += 300
    assert remote.requests == ["list", "create"]
    log.note(record(101))
    assert remote.requests == ["list", "create", "replace"]
    assert remote_ids(remote) == [*range(1, 102)]
    log.note(record(102))
    # What is not written yet is told of all the same.
    assert ids(log) == [*range(1, 103)]
    log.close()
    log.close()
    assert remote_ids(remote) == [*range(1, 103)]


@pytest.mark.parametrize("outcome", ["regional", "aborted"])
def test_elsewhere_what_went_wrong_is_written_at_once(outcome: str) -> None:
    remote = Remote("memory:/ckpt")
    log = opened(remote)
    log.note(record(1))
    log.note(record(2))
    log.note(record(3, outcome))
    assert remote_ids(remote) == [1, 2, 3]


def test_elsewhere_a_full_page_is_followed_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    remote = Remote("memory:/ckpt")
    monkeypatch.setattr(pages, "PAGE_BYTES", 32_000)
    log = opened(remote)
    for id in range(1, 451):
        log.note(record(id, "aborted" if id % 50 == 0 else "global"))
    assert [len(page.splitlines()) for page in remote.files.values()] == [200, 200, 50]
    assert ids(log) == [*range(1, 451)]
    assert ids(log, last=60) == [*range(391, 451)]


def test_elsewhere_a_failure_to_write_is_made_good() -> None:
    remote, clock = Remote("memory:/ckpt"), SetClock()
    log = opened(remote, clock=clock)
    log.note(record(1))
    remote.refuses = True
    log.note(record(2, "regional"))
    assert ids(log) == [1, 2]
    assert remote_ids(remote) == [1]
    remote.refuses = False
    clock.ms += 30_000
    log.note(record(3))
    assert remote_ids(remote) == [1, 2, 3]


def test_elsewhere_a_page_of_another_process_is_not_written_over() -> None:
    remote = Remote("memory:/ckpt")
    first, second = opened(remote), opened(remote, run="b")
    first.note(record(1))
    second.note(record(2))
    second.note(record(3, "regional"))
    assert len(remote.files) == 2
    assert sorted(remote_ids(remote)) == [1, 2, 3]
