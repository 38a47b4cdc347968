"""Beginning in a new folder from a checkpoint of another one (R72)."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.cli.main import main
from holdfast.regions.checkpoint import begin_from
from holdfast.regions.sinks import ParquetSink
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, RunningCount, expected, output_of, rows_of
from support.regional.restorable import (
    REGIONS,
    batches,
    damage,
    open_pipeline,
    run,
)


def content(folder: Path) -> dict[str, str]:
    return {
        str(file.relative_to(folder)): hashlib.sha256(file.read_bytes()).hexdigest()
        for file in folder.rglob("*")
        if file.is_file()
    }


def crash(*_: object) -> None:
    raise KeyboardInterrupt


def ran(path: Path, count: int) -> None:
    with open_pipeline(path) as query:
        run(query, batches(count))


def test_regions_keep_their_origins_and_what_they_owe(tmp_path: Path, hooks: Hooks) -> None:
    rows = batches(4)
    rows[1] = rows_of(1, REGIONS, each=90)
    with open_pipeline(tmp_path, hooks=hooks) as query:
        run(query, rows[:1])
        hooks.fail_for("r01", range(1000, 2000))
        run(query, rows[:2], first=1)
        failed = query.latest.failed
        assert set(failed) == {"r01"}
        assert query.latest.regions["r01"].in_flight[0].ref is not None
    hooks.calm()
    with open_pipeline(
        tmp_path,
        hooks=hooks,
        checkpoint="next",
        restore=hf.restore(tmp_path / "ckpt"),
        name="another",
    ) as query:
        assert query.latest.failed == failed
        run(query, rows, first=2)
        assert query.latest.is_global
    with open_pipeline(tmp_path, hooks=hooks, checkpoint="next", name="another") as query:
        assert query.latest.batch_id == 3
    assert output_of(tmp_path / "out") == expected(rows)


def test_without_a_claim_the_old_folder_is_only_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    ran(tmp_path, 3)
    before = content(tmp_path / "ckpt")
    origin = hf.restore(tmp_path / "ckpt")
    with open_pipeline(tmp_path, checkpoint="next", restore=origin) as query:
        run(query, batches(6), first=3)
    assert content(tmp_path / "ckpt") == before
    main(["show", str(tmp_path / "next")])
    assert f"checkpoint 4 of {tmp_path / 'ckpt'}" in (shown := capsys.readouterr().err)
    assert "may be deleted" in shown


def test_a_claimed_folder_is_deleted_but_for_what_is_not_the_pipelines(tmp_path: Path) -> None:
    rows = batches(5)
    for number, old in enumerate(("ckpt", "second")):
        with open_pipeline(tmp_path, checkpoint=old, output=f"out-{number}") as query:
            run(query, rows[:3])
    (tmp_path / "second" / "notes").write_text("mine")
    for number, old in enumerate(("ckpt", "second")):
        origin = hf.restore(tmp_path / old, mode="claim")
        with open_pipeline(
            tmp_path, checkpoint=f"next-{number}", output=f"out-{number}", restore=origin
        ) as query:
            run(query, rows, first=3)
        assert output_of(tmp_path / f"out-{number}") == expected(rows)
    assert not (tmp_path / "ckpt").exists()
    assert [path.name for path in (tmp_path / "second").iterdir()] == ["notes"]


def test_a_claim_that_was_interrupted_is_made_good_at_the_next_start(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran(tmp_path, 2)
    origin = hf.restore(tmp_path / "ckpt", mode="claim")

    with monkeypatch.context() as patch:
        patch.setattr(begin_from, "delete_claimed", crash)
        with pytest.raises(KeyboardInterrupt):
            open_pipeline(tmp_path, checkpoint="next", restore=origin)
    assert (tmp_path / "ckpt").exists()
    with open_pipeline(tmp_path, checkpoint="next", restore=origin) as query:
        run(query, batches(3), first=2)
    assert not (tmp_path / "ckpt").exists()
    assert output_of(tmp_path / "out") == expected(batches(3))


def test_a_claim_does_not_delete_what_came_into_its_place(tmp_path: Path) -> None:
    ran(tmp_path, 2)
    origin = hf.restore(tmp_path / "ckpt", mode="claim")
    open_pipeline(tmp_path, checkpoint="next", restore=origin).close()
    with open_pipeline(tmp_path, output="elsewhere") as query:
        run(query, batches(2))
    open_pipeline(tmp_path, checkpoint="next", restore=origin).close()
    assert main(["verify", str(tmp_path / "ckpt")]) == 0


def test_ids_go_on_behind_attempts_that_left_nothing_else(
    tmp_path: Path, hooks: Hooks
) -> None:  # R2
    rows = batches(3)
    with open_pipeline(tmp_path, hooks=hooks, max_consecutive_failures=0) as query:
        run(query, rows[:1])
        hooks.fail_for("r01", range(1000, 2000))
        with pytest.raises(hf.RegionalQueryError, match="r01 is in trouble"):
            run(query, rows[:2], first=1)
        assert query.latest.id == 2
    hooks.calm()
    with open_pipeline(
        tmp_path, hooks=hooks, checkpoint="next", restore=hf.restore(tmp_path / "ckpt")
    ) as query:
        run(query, rows, first=1)
        assert query.latest.id == 5
    assert output_of(tmp_path / "out") == expected(rows)


def test_starting_again_goes_on_from_the_new_folder(tmp_path: Path) -> None:
    rows = batches(6)
    ran(tmp_path, 2)
    origin = hf.restore(tmp_path / "ckpt")
    for done in (4, 6):
        with open_pipeline(tmp_path, checkpoint="next", restore=origin) as query:
            run(query, rows[:done], first=2)
    assert output_of(tmp_path / "out") == expected(rows)


def test_a_folder_with_other_checkpoints_is_not_begun_anew(tmp_path: Path) -> None:
    ran(tmp_path, 2)
    with open_pipeline(tmp_path, checkpoint="other", output="elsewhere") as query:
        run(query, batches(1))
    with pytest.raises(FileExistsError, match="begin in a new folder"):
        open_pipeline(tmp_path, checkpoint="other", restore=hf.restore(tmp_path / "ckpt"))
    origin = hf.restore(tmp_path / "ckpt", checkpoint_id=3)
    open_pipeline(tmp_path, checkpoint="next", restore=origin).close()
    with pytest.raises(FileExistsError, match="begin in a new folder"):
        open_pipeline(
            tmp_path, checkpoint="next", restore=hf.restore(tmp_path / "ckpt", checkpoint_id=2)
        )


def test_output_that_would_come_twice_is_refused(tmp_path: Path) -> None:
    rows = batches(3)
    ran(tmp_path, 3)
    origin = hf.restore(tmp_path / "ckpt", checkpoint_id=3)
    with pytest.raises(FileExistsError, match=r"part-0000000004-.*parquet"):
        open_pipeline(tmp_path, checkpoint="next", restore=origin)
    assert not (tmp_path / "next").exists()
    for file in (tmp_path / "out").glob("part-0000000004-*"):
        file.unlink()
    with open_pipeline(tmp_path, checkpoint="next", restore=origin) as query:
        run(query, rows, first=2)
    assert output_of(tmp_path / "out") == expected(rows)


def test_a_damaged_checkpoint_is_refused_and_an_intact_one_is_named(tmp_path: Path) -> None:  # R75
    rows = batches(3)
    with open_pipeline(tmp_path, max_file_bytes=4096) as query:
        run(query, rows)
    damaged = damage(tmp_path / "ckpt")
    with pytest.raises(hf.DamagedCheckpointError, match=damaged.name) as raised:
        open_pipeline(tmp_path, checkpoint="next", restore=hf.restore(tmp_path / "ckpt"))
    assert (raised.value.checkpoint, raised.value.intact) == (4, 3)
    advice = f"restore=holdfast.restore({str(tmp_path / 'ckpt')!r}, checkpoint_id=3)"
    assert str(raised.value).endswith(advice)
    assert not (tmp_path / "next").exists()
    with open_pipeline(
        tmp_path,
        checkpoint="next",
        output="elsewhere",
        restore=hf.restore(tmp_path / "ckpt", checkpoint_id=3),
    ) as query:
        assert query.latest.batch_id == 1


@pytest.mark.parametrize("inside", ["ckpt/next", "ckpt", "."])
def test_neither_folder_may_lie_in_the_other(tmp_path: Path, inside: str) -> None:
    ran(tmp_path, 1)
    with pytest.raises(ValueError, match="none lies in the other"):
        open_pipeline(tmp_path, checkpoint=inside, restore=hf.restore(tmp_path / "ckpt"))


def test_what_cannot_be_restored_is_said(tmp_path: Path) -> None:
    ran(tmp_path, 1)
    with pytest.raises(ValueError, match="no_claim"):
        hf.restore(tmp_path / "ckpt", mode="native")  # type: ignore[arg-type]
    with pytest.raises(FileNotFoundError, match="expected a savepoint"):
        open_pipeline(tmp_path, checkpoint="next", restore=hf.restore(tmp_path / "nowhere"))
    with pytest.raises(FileNotFoundError, match="expected checkpoint 77, found 1, 2"):
        open_pipeline(
            tmp_path,
            checkpoint="next",
            restore=hf.restore(tmp_path / "ckpt", checkpoint_id=77),
        )
    with pytest.raises(ValueError, match="name='pipeline'"):
        open_pipeline(tmp_path, name="another")


def not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rows: Any) -> None:
    """Run two batches, and end before the output of the second one is published."""
    with open_pipeline(tmp_path) as query, monkeypatch.context() as patch:
        run(query, rows[:1])
        patch.setattr(ParquetSink, "commit", crash)
        with pytest.raises(KeyboardInterrupt):
            run(query, rows[:2], first=1)
    assert output_of(tmp_path / "out") == expected(rows[:1])


def test_output_that_was_staged_is_published_where_it_belongs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # R81
    rows = batches(3)
    not_published(tmp_path, monkeypatch, rows)
    with open_pipeline(tmp_path, checkpoint="next", restore=hf.restore(tmp_path / "ckpt")) as query:
        assert output_of(tmp_path / "out") == expected(rows[:2])
        run(query, rows, first=2)
    assert output_of(tmp_path / "out") == expected(rows)


def test_output_that_was_staged_elsewhere_is_left_to_the_pipeline_that_staged_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:  # R92
    rows = batches(3)
    not_published(tmp_path, monkeypatch, rows)
    before = content(tmp_path)

    def restored() -> hf.LocalQuery:
        origin = hf.restore(tmp_path / "ckpt")
        return open_pipeline(tmp_path, checkpoint="next", output="elsewhere", restore=origin)

    with pytest.raises(ValueError, match="start the old pipeline once more"):
        restored()
    assert content(tmp_path) == before
    open_pipeline(tmp_path).close()
    with restored() as query:
        run(query, rows, first=2)
    both = output_of(tmp_path / "out") + output_of(tmp_path / "elsewhere")
    assert sorted(both) == expected(rows)


class Deliveries:
    """A function of ``foreach_batch`` that keeps what it is given; fails when it is told to."""

    def __init__(self) -> None:
        self.got: dict[int, list[tuple[object, ...]]] = {}
        self.away = False

    def __call__(self, rows: pa.Table, checkpoint: int) -> None:
        if self.away:
            raise ConnectionError("the database is away")
        assert checkpoint not in self.got
        self.got[checkpoint] = [tuple(row.values()) for row in rows.to_pylist()]

    @property
    def rows(self) -> list[tuple[object, ...]]:
        return sorted(row for rows in self.got.values() for row in rows)

    def open(self, path: Path, name: str, **options: Any) -> hf.LocalQuery:
        pipeline = hf.regional(region_by="region").apply(
            RunningCount(), schema=COUNTED, name="count"
        )
        return pipeline.foreach_batch(self).open_local(path / name, **options)


@pytest.mark.parametrize("away", [False, True], ids=["delivered", "pending"])
def test_a_function_has_every_row_once_across_a_restore(tmp_path: Path, away: bool) -> None:  # R81
    rows, function = batches(4), Deliveries()
    with function.open(tmp_path, "old") as query:
        run(query, rows[:2])
        if away:
            function.away = True
            with pytest.raises(ConnectionError):
                run(query, rows[:3], first=2)
    function.away = False
    done = 3 if away else 2
    with function.open(tmp_path, "new", restore=hf.restore(tmp_path / "old")) as query:
        run(query, rows, first=done)
    assert function.rows == expected(rows)


def test_rows_for_a_function_that_is_gone_are_not_lost_in_silence(tmp_path: Path) -> None:
    rows, function = batches(2), Deliveries()
    with function.open(tmp_path, "ckpt") as query:
        run(query, rows[:1])
        function.away = True
        with pytest.raises(ConnectionError):
            run(query, rows, first=1)
    before = content(tmp_path)
    with pytest.raises(ValueError, match="the function of the old pipeline was not called for"):
        open_pipeline(tmp_path, checkpoint="new", restore=hf.restore(tmp_path / "ckpt"))
    assert content(tmp_path) == before
    # Once it has had them, a pipeline that writes files may go on.
    function.away = False
    function.open(tmp_path, "ckpt").close()
    open_pipeline(tmp_path, checkpoint="new", restore=hf.restore(tmp_path / "ckpt")).close()
    assert function.rows == expected(rows)
