"""A process that works on a sink's folder may die before any of its system calls."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.dataset as ds

from holdfast.regions.sinks import ParquetSink, Staged
from support import program

JOB = program("regional/sink_crash_job.py")


def rows(region: str, attempt: int) -> pa.RecordBatch:
    return pa.record_batch(
        {"region": [region] * 100, "row": [attempt * 100 + n for n in range(100)]}
    )


def stage(sink: ParquetSink, region: str, attempt: int) -> Staged:
    batch = rows(region, attempt)
    with sink.writer(region, attempt, batch.schema) as writer:
        writer.write(batch)
        staged = writer.close()
    assert staged is not None
    assert sink.persist([writer], None) == [None]
    return staged


def killed(action: str, template: Path, runs: Path) -> list[Path]:
    """Folders of the runs: each was killed one call later, the last one not at all."""
    done = subprocess.run(
        [sys.executable, JOB, action, str(template), str(runs)],
        check=True,
        stdout=subprocess.PIPE,
        text=True,
    )
    return [runs / str(nth) for nth in range(1, int(done.stdout) + 1)]


def published(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in folder.glob("part-*")}


def staged_files(folder: Path) -> list[str]:
    return sorted(file.parent.name for file in folder.glob("_holdfast/staged/*/*"))


def test_a_commit_that_was_killed_anywhere_is_finished_by_recovery(tmp_path: Path) -> None:
    # R74, R81
    template = tmp_path / "template"
    sink = ParquetSink(template / "out")
    staged = [stage(sink, region, 7) for region in ("a", "b", "c")]
    fields = [(one.path, one.target, one.rows, one.bytes) for one in staged]
    (template / "staged.json").write_text(json.dumps(fields))
    undisturbed = tmp_path / "undisturbed"
    shutil.copytree(template, undisturbed)
    ParquetSink(undisturbed / "out").commit(1, staged)
    expected = published(undisturbed / "out")
    assert sorted(expected) == sorted(one.target for one in staged)
    visible = set()
    for run in killed("commit", template, tmp_path):
        before = published(run / "out")
        assert before.items() <= expected.items(), "what can be read is whole"
        assert len(before) + len(staged_files(run / "out")) >= 3, "no file is lost"
        visible.add(len(before))
        for _ in range(2):
            ParquetSink(run / "out").recover(1, staged)
            assert published(run / "out") == expected
            assert staged_files(run / "out") == []
    assert visible == {0, 1, 2, 3}


def test_a_task_that_was_killed_anywhere_leaves_nothing_that_is_seen_or_stays(
    tmp_path: Path,
) -> None:
    # R80
    template = tmp_path / "template"
    template.mkdir()
    runs = killed("stage", template, tmp_path)
    assert len(runs) > 5
    for run in runs:
        sink = ParquetSink(run / "out")
        assert published(sink.root) == {}
        staged = stage(sink, "a", 7)
        sink.commit(1, [staged])
        sink.sweep(8)
        assert ds.dataset(sink.root, format="parquet").to_table() == pa.Table.from_batches(
            [rows("a", 7)]
        )
        assert staged_files(sink.root) == []


def test_a_sweep_that_was_killed_anywhere_is_finished_by_the_next(tmp_path: Path) -> None:
    template = tmp_path / "template"
    sink = ParquetSink(template / "out")
    sink.commit(1, [stage(sink, "a", 2)])
    for attempt, region in [(1, "a"), (1, "b"), (2, "b"), (3, "a"), (11, "a")]:
        stage(sink, region, attempt)
    expected = published(sink.root)
    runs = killed("sweep", template, tmp_path)
    assert len(runs) > 5
    for run in runs:
        sink = ParquetSink(run / "out")
        assert staged_files(sink.root)[-2:] == ["0000000003", "0000000011"]
        sink.sweep(3)
        assert staged_files(sink.root) == ["0000000003", "0000000011"]
        assert sorted(file.name for file in sink.root.glob("_holdfast/staged/*")) == [
            "0000000003",
            "0000000011",
        ]
        assert published(sink.root) == expected
