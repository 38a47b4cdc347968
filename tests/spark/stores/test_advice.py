"""The advice of errors about the checkpoint of a query, followed."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession

from support.spark.queries import canonical, drain, source, write_batch
from support.spark.state_files import merged_files, snapshot

BATCHES = 4
KEYS = 10


class Counts:
    """Rows by key, of one file with each key in each batch."""

    def __init__(self, spark: SparkSession, folder: Path) -> None:
        self.spark, self.folder = spark, folder
        self.input, self.checkpoint = folder / "input", folder / "checkpoint"
        self.input.mkdir()

    def feed(self, *numbers: int) -> None:
        for number in numbers:
            write_batch(self.input, number, [{"key": key} for key in range(KEYS)])

    def frame(self) -> DataFrame:
        return source(self.spark, self.input).groupBy("key").count()

    def run(self) -> dict[int, list[tuple[Any, ...]]]:
        rows: dict[int, list[tuple[Any, ...]]] = {}
        drain(self.frame(), checkpoint=self.checkpoint, mode="complete", into=rows)
        return rows

    def refused(self, *said: str) -> str:
        """The start says these and changes nothing; returns all that it says."""
        before = self.logs()
        with pytest.raises(Exception, match="Nothing was changed") as refusal:
            self.run()
        for part in (str(self.checkpoint), *said):
            assert part in str(refusal.value)
        assert "new checkpoint location" not in str(refusal.value)
        assert self.logs() == before
        return str(refusal.value)

    def logs(self) -> dict[str, str]:
        """What is in them. Maintenance of the last run may still write state."""
        files = snapshot(self.checkpoint).items()
        return {name: content for name, content in files if not name.endswith(".hf")}

    def remove(self, log: str, *batches: int) -> None:
        """Entries of a log, with their twins."""
        for batch in batches:
            for name in (str(batch), f".{batch}.crc"):
                (self.checkpoint / log / name).unlink(missing_ok=True)


def counted(times: int) -> list[tuple[Any, ...]]:
    return sorted(((key, times) for key in range(KEYS)), key=repr)


@pytest.fixture
def counts(spark: SparkSession, tmp_path: Path) -> Counts:
    """A query after four batches, and one more file."""
    counts = Counts(spark, tmp_path)
    counts.feed(*range(BATCHES))
    counts.run()
    counts.feed(BATCHES)
    return counts


@pytest.mark.parametrize("has_copy", [True, False])
@pytest.mark.parametrize("log", ["commits", "offsets"])
def test_entries_of_a_log_are_put_back_or_the_query_goes_back(
    counts: Counts, log: str, has_copy: bool
) -> None:
    other = "offsets" if log == "commits" else "commits"
    copy = counts.folder / "copy"
    shutil.copytree(counts.checkpoint / log, copy)
    counts.remove(log, 2, 3)
    counts.refused(f"lacks entries of {log} behind 1", f"delete the entries of {other} behind 1")
    if has_copy:
        shutil.copytree(copy, counts.checkpoint / log, dirs_exist_ok=True)
        assert counts.run() == {BATCHES: counted(5)}
    else:
        counts.remove(other, 2, 3)
        rows = counts.run()
        # The file source takes the files that it noted before in one batch.
        assert rows[max(rows)] == counted(5)


@pytest.mark.parametrize("log", ["commits", "offsets"])
def test_without_any_entry_of_a_log_a_copy_helps_or_a_new_checkpoint(
    counts: Counts, log: str
) -> None:
    copy = counts.folder / "copy"
    shutil.copytree(counts.checkpoint / log, copy)
    counts.remove(log, *range(BATCHES))
    said = counts.refused(f"lacks entries of {log} behind none", "begin with a new checkpoint")
    assert "go back" not in said
    counts.checkpoint.rename(counts.folder / "torn")
    assert counts.run()[BATCHES] == counted(5)
    shutil.rmtree(counts.checkpoint)
    (counts.folder / "torn").rename(counts.checkpoint)
    shutil.copytree(copy, counts.checkpoint / log, dirs_exist_ok=True)
    assert counts.run() == {BATCHES: counted(5)}


def test_a_query_that_failed_in_its_first_batch_or_lost_one_entry_starts(counts: Counts) -> None:
    counts.remove("commits", 3)
    assert counts.run() == {3: counted(4), 4: counted(5)}
    # Whatever lies between: only the newest entries say where the state is.
    counts.remove("commits", 1)
    counts.remove("offsets", 1)
    counts.feed(5)
    assert counts.run() == {5: counted(6)}


@pytest.mark.parametrize("lost", ["earlier", "this batch"])
def test_a_restart_is_advised_only_if_it_can_load_the_state(
    spark: SparkSession, tmp_path: Path, lost: str
) -> None:
    counts = Counts(spark, tmp_path)
    counts.feed(*range(2))
    last = 1 if lost == "earlier" else 0
    copy = tmp_path / "copy"

    def lose_files(batch: DataFrame, number: int) -> None:
        canonical(batch.collect())
        if number == last and not copy.exists():
            shutil.copytree(counts.checkpoint / "state" / "holdfast", copy)
            for file in merged_files(counts.checkpoint):
                file.unlink()

    writer = counts.frame().writeStream.outputMode("complete").foreachBatch(lose_files)
    writer = writer.option("checkpointLocation", str(counts.checkpoint))
    query = writer.trigger(availableNow=True).start()
    with pytest.raises(Exception, match="The batch was not committed") as failure:
        query.awaitTermination()
    said = str(failure.value)
    if lost == "earlier":
        assert "State of the last committed batch is gone: " in said
        assert "Nothing is lost" not in said
        for file in copy.glob("*.hf"):
            assert file.name in said
        with pytest.raises(Exception, match="MissingStateException"):
            counts.run()
        shutil.copytree(copy, counts.checkpoint / "state" / "holdfast", dirs_exist_ok=True)
    else:
        assert "Nothing is lost: check the executor and the storage and restart" in said
    assert counts.run()[1] == counted(2)


def test_state_of_a_newer_holdfast_is_not_given_up(counts: Counts) -> None:
    entry = counts.checkpoint / "commits" / str(BATCHES - 1)
    good = entry.read_text()
    entry.write_text(good.replace('"hf', '"hf9'))
    (entry.parent / f".{entry.name}.crc").unlink()
    before = snapshot(counts.checkpoint / "commits")
    with pytest.raises(Exception, match="NewerFormatException") as failure:
        counts.run()
    assert "a newer Holdfast wrote it, and it is intact. Upgrade Holdfast" in str(failure.value)
    assert "new checkpoint" not in str(failure.value)
    assert snapshot(counts.checkpoint / "commits") == before
    entry.write_text(good)
    assert counts.run() == {BATCHES: counted(5)}


def test_a_damaged_record_of_spark_is_restored_or_deleted(counts: Counts) -> None:
    record = counts.checkpoint / "state" / "holdfast.json"
    good = record.read_text()
    record.write_text(good[:-3])
    (record.parent / ".holdfast.json.crc").unlink(missing_ok=True)
    counts.refused("Restore the file from a copy, or delete it")
    record.write_text(good)
    assert counts.run() == {BATCHES: counted(5)}
    record.write_text("")
    counts.feed(5)
    counts.refused("Restore the file from a copy, or delete it")
    record.unlink()
    assert counts.run() == {5: counted(6)}
    assert record.read_text() == good
