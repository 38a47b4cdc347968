"""Rows are in a Delta table once, whatever happens, by its own log."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake

import holdfast as hf
from holdfast.regions.sinks import delta
from holdfast.regions.sinks.delta import APPLICATION
from support import run_until_killed
from support.regional.delta_job import BATCHES, POINTS, open_pipeline, run
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, Troubled, expected


def rows_in(table: Path) -> list[tuple[Any, ...]]:
    return sorted(tuple(row.values()) for row in DeltaTable(table).to_pyarrow_table().to_pylist())


@pytest.fixture
def table(tmp_path: Path) -> Path:
    return tmp_path / "table"


def begin(table: Path, checkpoint: Path, batches: int) -> None:
    with open_pipeline(table, checkpoint) as query:
        run(query, batches)


def goes_on_after_two(table: Path, checkpoint: Path, **options: Any) -> None:
    with open_pipeline(table, checkpoint, **options) as query:
        assert rows_in(table) == expected(BATCHES[:2])
        run(query, 4, first=2)
    assert rows_in(table) == expected(BATCHES)


def compact_and_vacuum(table: Path) -> None:
    DeltaTable(table).optimize.compact()
    DeltaTable(table).vacuum(0, enforce_retention_duration=False, dry_run=False)


def test_a_checkpoint_is_one_entry_of_the_log_with_its_id(table: Path, tmp_path: Path) -> None:
    with open_pipeline(table, tmp_path / "ckpt") as query:
        run(query, 3)
        latest = query.latest.id
    assert rows_in(table) == expected(BATCHES[:3])
    assert DeltaTable(table).version() == 2
    assert DeltaTable(table).transaction_version(APPLICATION) == latest
    assert {path.name for path in table.iterdir() if path.name.startswith("_")} == {
        "_delta_log",
        "_holdfast",
        "_holdfast_owner",
    }


@pytest.mark.parametrize("point", POINTS)
def test_a_driver_that_is_killed_around_a_commit_adds_each_row_once(
    point: str, table: Path, tmp_path: Path
) -> None:
    # R74, R81
    run_until_killed("regional/delta_job.py", table, tmp_path / "ckpt", point)
    found = rows_in(table)
    assert found == expected(BATCHES[: 2 if point in ("added", "synced", "swept") else 1])
    goes_on_after_two(table, tmp_path / "ckpt")
    assert list((table / "_holdfast" / "staged").glob("*/*")) == []


def test_a_regional_checkpoint_adds_the_healthy_regions_and_the_rest_follows_once(
    table: Path, tmp_path: Path, hooks: Hooks
) -> None:
    # R80
    with open_pipeline(table, tmp_path / "ckpt", hooks=hooks) as query:
        run(query, 1)
        hooks.fail_for("r02", range(1000, 1030))
        run(query, 2, first=1)
        assert query.latest.failed.keys() == {"r02"}
        missing = set(expected(BATCHES[:2])) - set(rows_in(table))
        assert {row[0] for row in missing} == {"r02"}
        hooks.calm()
        run(query, 3, first=2)
    assert rows_in(table) == expected(BATCHES[:3])


def test_files_that_were_compacted_and_deleted_are_not_added_again(
    table: Path, tmp_path: Path
) -> None:
    begin(table, tmp_path / "ckpt", 2)
    compact_and_vacuum(table)
    assert list(table.glob("part-0*-r*.parquet")) == []
    goes_on_after_two(table, tmp_path / "ckpt")


def test_other_writers_may_append_meanwhile(table: Path, tmp_path: Path) -> None:
    with open_pipeline(table, tmp_path / "ckpt") as query:
        run(query, 1)
        write_deltalake(table, DeltaTable(table).to_pyarrow_table(), mode="append")
        run(query, 2, first=1)
    once = expected(BATCHES[:1])
    assert rows_in(table) == sorted([*once, *expected(BATCHES[:2])])


def test_going_back_takes_rows_out_of_the_table_again(table: Path, tmp_path: Path) -> None:
    # R82
    begin(table, tmp_path / "ckpt", 3)
    with open_pipeline(table, tmp_path / "ckpt", checkpoint_id=3) as query:
        assert rows_in(table) == expected(BATCHES[:2])
        assert DeltaTable(table).transaction_version(APPLICATION) == 3
        run(query, 4, first=2)
    assert rows_in(table) == expected(BATCHES)


def test_going_back_behind_a_compaction_is_refused_until_the_table_went_back(
    table: Path, tmp_path: Path
) -> None:
    begin(table, tmp_path / "ckpt", 3)
    before = DeltaTable(table).version() - 1
    DeltaTable(table).optimize.compact()
    with pytest.raises(OSError, match=r"after 3 may be in files that another writer .*RESTORE"):
        open_pipeline(table, tmp_path / "ckpt", checkpoint_id=3)
    assert rows_in(table) == expected(BATCHES[:3])
    DeltaTable(table).restore(before)
    goes_on_after_two(table, tmp_path / "ckpt")


def test_rows_that_cannot_be_told_apart_any_more_are_left_to_the_user(
    table: Path, tmp_path: Path
) -> None:
    begin(table, tmp_path / "ckpt", 3)
    compact_and_vacuum(table)
    with pytest.raises(OSError, match=r"set the version of the transaction 'holdfast' .* to 3"):
        open_pipeline(table, tmp_path / "ckpt", checkpoint_id=3)
    assert rows_in(table) == expected(BATCHES[:3])
    DeltaTable(table).delete("id >= 2000")
    found = DeltaTable(table)
    said = CommitProperties(app_transactions=[Transaction(APPLICATION, 3)])
    found.create_write_transaction([], "append", found.schema(), commit_properties=said)
    goes_on_after_two(table, tmp_path / "ckpt")


def test_entries_of_the_log_are_durable_before_a_commit_returns(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[str] = []
    monkeypatch.setattr(delta, "sync_file", lambda path: synced.append(path.name))
    monkeypatch.setattr(delta, "sync_path", lambda _, folder: synced.append(folder.name))
    begin(table, tmp_path / "ckpt", 2)
    entries = [f"{version:020d}.json" for version in range(2)]
    assert synced == [entries[0], "_delta_log", entries[1], "_delta_log"]
    synced.clear()
    # Whoever died behind an entry may not have synced it.
    (tmp_path / "ckpt" / "published").unlink()
    with open_pipeline(table, tmp_path / "ckpt"):
        assert synced == [*entries, "_delta_log"]


def test_a_savepoint_goes_on_with_the_same_table_but_not_behind_later_rows(
    table: Path, tmp_path: Path
) -> None:
    with open_pipeline(table, tmp_path / "ckpt") as query:
        run(query, 2)
        query.stop_with_savepoint(tmp_path / "saved")
    saved = hf.restore(tmp_path / "saved")
    with open_pipeline(table, tmp_path / "second", restore=saved) as query:
        run(query, 4, first=2)
    assert rows_in(table) == expected(BATCHES)
    with pytest.raises(FileExistsError, match="belongs to pipeline"):
        open_pipeline(table, tmp_path / "third", restore=saved)
    # Not even if the files were compacted and nothing but the log tells of them.
    with pytest.raises(FileExistsError, match=r"files of checkpoints after|belongs to pipeline"):
        open_pipeline(table, tmp_path / "ckpt-2", restore=hf.restore(tmp_path / "ckpt"))
    assert rows_in(table) == expected(BATCHES)


def test_a_new_pipeline_is_refused_at_a_table_that_has_rows_of_another(
    table: Path, tmp_path: Path
) -> None:
    # Its ids begin anew: the table would take its checkpoints for those that it has.
    begin(table, tmp_path / "ckpt", 2)
    compact_and_vacuum(table)
    with pytest.raises(FileExistsError, match="belongs to pipeline"):
        open_pipeline(table, tmp_path / "second")
    (table / "_holdfast_owner").unlink()
    with pytest.raises(FileExistsError, match=r"checkpoint 3 of "):
        open_pipeline(table, tmp_path / "second")
    assert rows_in(table) == expected(BATCHES[:2])


@pytest.mark.parametrize(
    ("columns", "options", "message"),
    [
        ({"region": ["a"]}, {}, "rows do not fit the Delta table .*'id' is not there in the table"),
        (None, {"partition_by": ["region"]}, "partitioned by region"),
        (
            None,
            {"configuration": {"delta.enableChangeDataFeed": "true"}},
            "needs of its writers what write_delta does not do",
        ),
        (
            None,
            {"configuration": {"delta.setTransactionRetentionDuration": "interval 30 days"}},
            "forgets transactions after 'interval 30 days'",
        ),
    ],
)
def test_a_table_that_rows_do_not_fit_is_refused_before_anything_is_there(
    table: Path, tmp_path: Path, columns: Any, options: dict[str, Any], message: str
) -> None:
    content = COUNTED.empty_table() if columns is None else pa.table(columns)
    write_deltalake(table, content, **options)
    before = sorted(table.rglob("*"))
    with pytest.raises(ValueError, match=message):
        open_pipeline(table, tmp_path / "ckpt")
    assert sorted(table.rglob("*")) == before
    assert not (tmp_path / "ckpt").exists()


@pytest.mark.parametrize("kind", [pa.uint32(), pa.timestamp("ns"), pa.list_(pa.uint8())])
def test_a_column_that_delta_has_no_type_for_is_refused(
    table: Path, tmp_path: Path, kind: pa.DataType
) -> None:
    writer = (
        hf.regional(region_by="region")
        .apply(Troubled(None), schema=pa.schema([("odd", kind)]))
        .write_delta(table)
    )
    with pytest.raises(ValueError, match="no type for column 'odd'"):
        writer.open_local(tmp_path / "ckpt")
    assert not table.exists()


def test_a_table_that_only_spark_reaches_is_refused_with_the_way_out() -> None:
    pipeline = hf.regional(region_by="region")
    with pytest.raises(ValueError, match=r"write_delta: 's3a://bucket/table' .*foreach_batch"):
        pipeline.write_delta("s3a://bucket/table")


def test_without_deltalake_the_extra_is_named(table: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "deltalake", None)
    with pytest.raises(ImportError, match=r"pip install 'holdfast-spark\[delta\]'"):
        hf.regional(region_by="region").write_delta(table)


def test_a_folder_that_write_parquet_wrote_is_refused(table: Path, tmp_path: Path) -> None:
    with (
        hf.regional(region_by="region")
        .apply(Troubled(None), schema=COUNTED, name="count")
        .write_parquet(table)
        .open_local(tmp_path / "ckpt") as query
    ):
        run(query, 2)
    with pytest.raises(hf.SinkFailedError, match="has no Delta table"):
        open_pipeline(table, tmp_path / "ckpt")
    assert not (table / "_delta_log").exists()
