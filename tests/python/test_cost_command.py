"""``holdfast cost``, on checkpoints and progress events that look like those of Spark."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from holdfast.cli import cost
from holdfast.queries import batches
from holdfast.queries.folder import PROVIDER
from support.commands import cells, run

ROOT = Path(__file__).resolve().parents[2]
STATE = "org.apache.spark.sql.execution.streaming.state"
STORE = "spark.sql.streaming.stateStore.providerClass"
INTERVAL_S = 10
OF_HDFS = {"loadedMapCacheHitCount": 1}


def checkpoint(
    folder: Path, *, provider: str, files: Mapping[str, int], batch_count: int = 3
) -> Path:
    """A checkpoint with two partitions, and in each for batch N the files named ``{version}…``."""
    for log in ("offsets", "commits"):
        (folder / log).mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"defe868c-b6a8-4221-ae10-d348ec3c6041"}')
    for batch in range(batch_count):
        metadata = {
            "batchTimestampMs": 1_780_000_000_000 + batch * INTERVAL_S * 1000,
            "conf": {STORE: f"{STATE}.{provider}"},
        }
        (folder / "offsets" / str(batch)).write_text(f"v1\n{json.dumps(metadata)}\n{{}}\n")
        (folder / "offsets" / f".{batch}.crc").write_text("crc")
        (folder / "commits" / str(batch)).write_text('v1\n{"nextBatchWatermarkMs":0}')
    # A batch that was not committed left some.
    for version in range(1, batch_count + 2):
        for partition in range(2):
            for name, size in files.items():
                file = folder / "state" / "0" / str(partition) / name.format(version=version)
                file.parent.mkdir(parents=True, exist_ok=True)
                file.write_bytes(b"-" * size)
                file.with_name(f".{file.name}.crc").write_bytes(b"crc")
    schema = folder / "state" / "0" / "_metadata"
    schema.mkdir(parents=True, exist_ok=True)
    (schema / "1.zip").write_text("no state")
    return folder


def cost_of(capsys: pytest.CaptureFixture[str], *arguments: object) -> list[dict[str, Any]]:
    status, lines, err = run(capsys, "cost", "--json", *arguments)
    assert (status, err) == (0, "")
    queries: list[dict[str, Any]] = json.loads("\n".join(lines))["queries"]
    return queries


def numbers(way: Mapping[str, Any]) -> dict[str, float]:
    return {term["what"]: term["number"] for term in way["terms"]}


@pytest.mark.parametrize(
    ("provider", "files", "objects"),
    [
        ("HDFSBackedStateStoreProvider", {"{version}.delta": 10}, {"delta": 2}),
        ("RocksDBStateStoreProvider", {"{version}.changelog": 10}, {"changelog": 2}),
        (
            "RocksDBStateStoreProvider",
            {"{version}_0b5e-a.changelog": 9, "{version}_0b5e-a.changelog.crc": 1},
            {"changelog": 2, "crc": 2},
        ),
        (
            "HDFSBackedStateStoreProvider",
            {"left-keyToNumValues/{version}.delta": 5, "right-keyToNumValues/{version}.delta": 5},
            {"delta": 4},
        ),
    ],
)
def test_a_batch_is_what_the_newest_versions_have(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    provider: str,
    files: Mapping[str, int],
    objects: Mapping[str, float],
) -> None:
    folder = checkpoint(tmp_path / "c", provider=provider, files=files)
    (query,) = cost_of(capsys, folder)
    assert query["provider"] == provider
    assert (query["batches"], query["interval_s"], query["bytes"]) == (3, INTERVAL_S, 20)
    assert numbers(query["ways"]["now"]) == {"log entry": 2, **objects}
    assert query["ways"]["now"]["objects"] == 2 + sum(objects.values())
    with_holdfast = query["ways"]["with Holdfast"]
    assert numbers(with_holdfast) == {
        "log entry": 2,
        "merged file": cost.EXECUTORS,
        cost.LISTING: 1,
    }
    assert with_holdfast["objects"] == 2 + cost.EXECUTORS


def test_files_that_versions_share_are_spread_over_all_of_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {"{version}.zip": 10, "SSTs/00{version}-0b5e.sst": 30}
    folder = checkpoint(
        tmp_path / "c", provider="RocksDBStateStoreProvider", files=files, batch_count=30
    )
    (query,) = cost_of(capsys, folder)
    assert query["batches"] == batches.BATCHES_MAX
    assert numbers(query["ways"]["now"]) == {"log entry": 2, "zip": 2, "sst": 2}
    assert query["bytes"] == 80


def test_an_image_now_and_then_counts_by_how_often_there_is_one(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint(
        tmp_path / "c",
        provider="RocksDBStateStoreProvider",
        files={"{version}.changelog": 10},
        batch_count=30,
    )
    for version in (10, 20, 30):
        (folder / "state" / "0" / "0" / f"{version}.zip").write_bytes(b"-")
        sst = folder / "state" / "0" / "0" / "SSTs" / f"{version}.sst"
        sst.parent.mkdir(exist_ok=True)
        sst.write_bytes(b"-")
    (query,) = cost_of(capsys, folder)
    found = numbers(query["ways"]["now"])
    assert found == {"log entry": 2, "changelog": 2, "zip": 0.1, "sst": pytest.approx(0.1)}


def test_prices_interval_and_executors_may_be_given(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint(
        tmp_path / "c", provider="HDFSBackedStateStoreProvider", files={"{version}.delta": 1}
    )
    given = ("--interval", 60, "--executors", 7, "--put-price", 10, "--get-price", 0)
    (query,) = cost_of(capsys, folder, *given)
    assert query["batches_of_month"] == 30 * 24 * 60
    with_holdfast = query["ways"]["with Holdfast"]
    assert with_holdfast["requests"] == {"put": 2 + 7 + 1, "get": 0, "delete": 0}
    assert with_holdfast["usd_of_month"] == pytest.approx(30 * 24 * 60 * 10 * 10 / 1000)


def test_a_query_without_state_needs_no_merged_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint(tmp_path / "c", provider="HDFSBackedStateStoreProvider", files={})
    (query,) = cost_of(capsys, folder)
    assert numbers(query["ways"]["with Holdfast"]) == {"log entry": 2, cost.LISTING: 1}


def test_entries_of_a_source_of_files_count_also_if_they_are_merged(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint(tmp_path / "c", provider="HDFSBackedStateStoreProvider", files={})
    (folder / "sources" / "0").mkdir(parents=True)
    for name in ("0", "1", "2.compact"):
        (folder / "sources" / "0" / name).write_text("v1\n")
    # A source such as Kafka has one entry in all.
    (folder / "sources" / "1").mkdir()
    (folder / "sources" / "1" / "0").write_text("v1\n")
    (query,) = cost_of(capsys, folder)
    assert numbers(query["ways"]["now"])["log entry"] == pytest.approx(2 + 1 + 1 / 3)


def test_a_checkpoint_of_holdfast_costs_what_it_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint(tmp_path / "c", provider="", files={}, batch_count=6)
    fixture = ROOT / "tests" / "fixtures" / "state-v1"
    (folder / "state" / "holdfast").mkdir()
    for batch, id in enumerate((fixture / "ids.txt").read_text().split()[:6]):
        ids = {"stateUniqueIds": {"0": [[], [], [], [id]]}}
        (folder / "commits" / str(batch)).write_text(f"v2\n{json.dumps(ids)}")
        entry = folder / "offsets" / str(batch)
        entry.write_text(entry.read_text().replace(f"{STATE}.", PROVIDER))
    (query,) = cost_of(capsys, folder)
    assert list(query["ways"]) == ["now"]
    assert numbers(query["ways"]["now"]) == {"log entry": 2, "merged file": 1, cost.LISTING: 1}
    assert query["bytes"] > 0


def event(
    batch: int, metrics: Mapping[str, int], *, stores: int = 200, id: str = "q"
) -> dict[str, Any]:
    """Progress of a batch, as Spark writes it."""
    return {
        "id": id,
        "runId": "r",
        "batchId": batch,
        "timestamp": f"2026-06-01T10:00:{batch * INTERVAL_S:02}.000Z",
        "durationMs": {"addBatch": 900, "triggerExecution": 1000},
        "stateOperators": [
            {"numStateStoreInstances": stores, "commitTimeMs": 8000, "customMetrics": {**metrics}}
        ],
        "sources": [{"description": "KafkaV2[Subscribe[events]]"}],
    }


def lines_of(path: Path, *events: object) -> Path:
    path.write_text("".join(json.dumps(one) + "\n" for one in events))
    return path


@pytest.mark.parametrize(
    ("metrics", "objects"),
    [
        (OF_HDFS, {"delta": 200}),
        ({"rocksdbCommitFlushLatency": 9, "rocksdbSaveZipFilesLatencyMs": 0}, {"changelog": 200}),
        (
            {
                "rocksdbCommitFlushLatency": 9,
                "rocksdbSaveZipFilesLatencyMs": 5,
                "rocksdbFilesCopied": 40,
                "rocksdbBytesCopied": 1000,
                "rocksdbZipFileBytesUncompressed": 24,
            },
            {"zip": 200, "sst": 40},
        ),
    ],
)
def test_progress_tells_objects_and_commit_time(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    metrics: Mapping[str, int],
    objects: Mapping[str, float],
) -> None:
    idle = event(2, metrics) | {"durationMs": {"triggerExecution": 1}}
    file = lines_of(tmp_path / "p.jsonl", event(0, metrics), event(1, metrics), idle)
    (query,) = cost_of(capsys, file)
    assert numbers(query["ways"]["now"]) == {"log entry": 2, **objects}
    assert (query["batches"], query["interval_s"], query["commit_ms"]) == (2, INTERVAL_S, 8000)
    assert query["bytes"] == (1024 if "sst" in objects else None)


def test_an_event_log_tells_executors_and_queries(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    prefix = "org.apache.spark.sql.streaming.StreamingQueryListener$"
    added = [{"Event": "SparkListenerExecutorAdded", "Executor ID": str(n)} for n in range(3)]
    progress = [
        {
            "Event": f"{prefix}QueryProgressEvent",
            "progress": event(batch, OF_HDFS, id=id, stores=10),
        }
        for batch in range(2)
        for id in ("one", "two")
    ]
    folder = tmp_path / "eventlog_v2_local-1"
    folder.mkdir()
    lines_of(folder / "events_1_local-1", {"Event": "SparkListenerLogStart"}, *added, progress[0])
    lines_of(folder / "events_2_local-1", *progress[1:])
    (folder / "appstatus_local-1").touch()
    queries = cost_of(capsys, folder)
    assert [query["query"] for query in queries] == ["one", "two"]
    assert {query["executors"] for query in queries} == {3}
    assert numbers(queries[0]["ways"]["with Holdfast"])["merged file"] == 3


def test_the_arithmetic_is_that_of_the_page(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = lines_of(tmp_path / "progress.jsonl", *(event(n, OF_HDFS) for n in range(3)))
    status, lines, err = run(capsys, "cost", file)
    assert status == 0
    assert cost.PRICE_SOURCE in err
    page = (ROOT / "docs" / "file-systems.md").read_text()
    (block,) = re.findall(
        r"^```text\n\$ holdfast cost progress.jsonl\n(.*?)^```", page, re.M | re.S
    )
    assert [line.rstrip() for line in lines] == block.splitlines()
    assert cells(lines[0]) == ["per batch", "now", "with Holdfast"]


@pytest.mark.parametrize(
    ("content", "arguments", "said"),
    [
        ("", (), "expected the checkpoint folder of a query, its progress events"),
        ('{"durationMs"', (), "spark.eventLog.compress=false"),
        (json.dumps([event(0, OF_HDFS)]), (), "expected one JSON object a line (found a list)"),
        (json.dumps(event(0, OF_HDFS)), (), "Say it with --interval SECONDS"),
    ],
)
def test_an_error_says_what_was_expected_and_what_to_do(
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    content: str,
    arguments: tuple[str, ...],
    said: str,
) -> None:
    file = tmp_path / "p.jsonl"
    file.write_text(content)
    status, lines, err = run(capsys, "cost", file, *arguments)
    assert (status, lines) == (1, [])
    assert str(file) in err
    assert said in err


@pytest.mark.parametrize("text", ["v1\n{", "v1", "v1\n[]", ""])
def test_a_damaged_entry_is_named(
    text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    made = checkpoint(tmp_path, provider="RocksDBStateStoreProvider", files={"{version}.zip": 1})
    for batch in (0, 2):
        whole = (made / "offsets" / str(batch)).read_text()
        (made / "offsets" / str(batch)).write_text(text)
        status, lines, err = run(capsys, "cost", made)
        assert (status, lines) == (1, [])
        assert f"{made}/offsets/{batch} is damaged: put it back from a copy" in err
        (made / "offsets" / str(batch)).write_text(whole)


def test_a_checkpoint_without_batches_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = checkpoint(tmp_path / "c", provider="x", files={}, batch_count=0)
    status, lines, err = run(capsys, "cost", folder)
    assert (status, lines) == (1, [])
    assert f"{folder}: expected committed batches, found none. Let the query run" in err


@pytest.mark.parametrize("option", ["--interval", "--executors", "--put-price"])
@pytest.mark.parametrize("value", ["-1", "many", "nan"])
def test_numbers_that_make_no_sense_are_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], option: str, value: str
) -> None:
    with pytest.raises(SystemExit):
        run(capsys, "cost", tmp_path, option, value)
    assert "expected a number of at least" in capsys.readouterr().err
