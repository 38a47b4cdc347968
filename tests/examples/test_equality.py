from __future__ import annotations

from pathlib import Path

import pytest

pa = pytest.importorskip("pyarrow")

from harness.equality import (  # noqa: E402
    compare,
    last_per_key,
    read_batches,
    write_batch,
)


def test_equal_rows_in_another_order_and_with_nulls_are_equal() -> None:
    left = pa.table({"k": ["b", None, "a", "a"], "n": [1, 2, None, 3]})
    found = compare(left.take([3, 1, 0, 2]), left)
    assert found.equal
    assert found.digest_actual == found.digest_expected


@pytest.mark.parametrize(
    "rows",
    [
        {"k": ["a", "a"], "n": [1, 1]},  # one row doubled
        {"k": ["a"], "n": [1]},  # one row lost
        {"k": ["a", "b"], "n": [1, 3]},  # one value changed
        {"k": ["a", ""], "n": [1, 2]},  # another key
        {"k": ["a", "b"], "n": [1.0, 2.0]},  # another type
    ],
)
def test_any_difference_is_found_and_named(rows: dict[str, list[object]]) -> None:
    found = compare(pa.table(rows), pa.table({"k": ["a", "b"], "n": [1, 2]}))
    assert not found.equal
    assert "expected" in found.difference


def test_null_and_empty_text_have_different_digests() -> None:
    found = compare(pa.table({"k": [""]}), pa.table({"k": pa.array([None], pa.string())}))
    assert found.digest_actual != found.digest_expected


def test_last_update_of_each_key_wins_and_null_is_a_key() -> None:
    first = pa.table({"k": ["a", None, "b"], "n": [1, 2, 3]})
    second = pa.table({"k": [None, "a"], "n": [5, 4]})
    final = last_per_key([first, second], key="k")
    assert compare(final, pa.table({"k": ["a", None, "b"], "n": [4, 5, 3]})).equal


def test_a_batch_written_again_replaces_itself(tmp_path: Path) -> None:
    for value in (1, 2):
        write_batch(pa.table({"n": [value]}), sink=tmp_path, batch_id=7)
    (tmp_path / "batch-000008.part").write_bytes(b"half a file of a killed writer")
    assert [table.to_pylist() for table in read_batches(tmp_path)] == [[{"n": 2}]]
