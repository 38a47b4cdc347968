"""Union and broadcast state of regions that are new, and where regions do not agree (R63, R73)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import holdfast as hf
from support.regional.pipelines import partitions_of, rows_of

OPENED = pa.schema([("region", pa.string()), ("all", pa.string()), ("rule", pa.string())])


class Sharing(hf.Operator):
    """Adds the ids of its rows to a union state, and puts out what it had when it opened."""

    region_safe = False
    agreed = True

    def open(self, ctx: hf.OperatorContext) -> None:
        self.region = ctx.region
        self.all = ctx.state.union("all")
        self.rule = ctx.state.broadcast("rule", {"limit": 1, "names": []})
        self.told = (str(sorted(self.all.items)), str(self.rule.value))

    def process(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        self.all.items += batch.column("id").to_pylist()
        self.rule.value = {"names": [] if self.agreed else [self.region], "limit": 2}
        told, rule = self.told
        return pa.record_batch({"region": [self.region], "all": [told], "rule": [rule]})


def sharing(path: Path, checkpoint: str = "ckpt", **options: Any) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(options.pop("operator", Sharing()), schema=OPENED, name="share")
        .write_parquet(path / "out")
        .open_local(path / checkpoint, max_consecutive_failures=0, **options)
    )


def told(path: Path) -> list[tuple[str, str, str]]:
    """What regions put out, in the order of the checkpoints."""
    files = sorted((path / "out").glob("*.parquet"))
    return [tuple(row.values()) for file in files for row in pq.read_table(file).to_pylist()]


def run(query: hf.LocalQuery, number: int, *regions: str) -> None:
    query.run_batch(partitions_of(rows_of(number, regions, each=2), 1))


@pytest.mark.parametrize("restarted", [False, True])
def test_a_new_region_begins_with_what_the_others_share(tmp_path: Path, restarted: bool) -> None:
    query = sharing(tmp_path)
    run(query, 0, "a", "b")
    if restarted:
        query.close()
        query = sharing(tmp_path)
    run(query, 1, "a", "new", "too")
    with query:
        run(query, 2, "late")
    first, second, third = told(tmp_path)[:2], told(tmp_path)[2:5], told(tmp_path)[5:]
    empty = "{'limit': 1, 'names': []}"
    assert sorted(first) == [("a", "[]", empty), ("b", "[]", empty)]
    ruled = "{'names': [], 'limit': 2}"
    # Region a goes on with its own: it was opened before, or restored.
    own = ("a", "[0, 10]", ruled) if restarted else ("a", "[]", empty)
    shared = "[0, 1, 10, 11]"
    assert sorted(second) == [own, ("new", shared, ruled), ("too", shared, ruled)]
    [(_, items, rule)] = third
    # Items of four regions, of which two began with those of the first two.
    assert (len(items.split(",")), rule) == (4 + 2 * 4 + 6, ruled)


def test_regions_that_do_not_agree_are_named(tmp_path: Path) -> None:
    class Disagreeing(Sharing):
        agreed = False

    with sharing(tmp_path, operator=Disagreeing()) as query:
        run(query, 0, "a", "b")
        with pytest.raises(
            hf.RegionalQueryError,
            match="broadcast state 'rule' is not the same in regions 'a' and 'b'",
        ):
            run(query, 1, "c")


def test_a_region_that_comes_after_the_end_of_data_cannot_go_on_with_union_state(
    tmp_path: Path,
) -> None:  # R63
    with sharing(tmp_path) as query:
        run(query, 0, "a", "b")
        query.end_of_data()
        with pytest.raises(
            hf.RegionalQueryError, match="only some regions of an operator with union state have"
        ):
            run(query, 1, "c")
    with sharing(tmp_path) as query:
        assert all(entry.finished for entry in query.latest.regions.values())
