"""The benchmark of resident memory: rows are checked, and what is subtracted is what it says."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("rich")

BENCHES = Path(__file__).parents[2] / "benches"
MIB = 1 << 20


@pytest.fixture(autouse=True)
def _benches_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHES), *sys.path])


def plans(**given: Any) -> dict[str, Any]:
    from resident import measure

    options = {
        "providers": ["spark", "rocksdb", "rocksdb-changelog", "holdfast"],
        "rounds": 1,
        "query": None,
        "rows": None,
        "partitions": 20,
        "target_mib": None,
        "resident_batches": None,
        "quick": False,
        "driver_memory": "2g",
    }
    found = measure.plans(Namespace(**options | given), Path("somewhere"))
    return {plan.query.name: plan for plan in found}


def batches(tables: int) -> list[Any]:
    """New keys first, then rows over all keys."""
    from resident.inputs import Request

    requests = [Request(index=0, keys=0, rows=50, new=True)]
    for index in range(1, 5):
        keys = requests[-1].keys_after
        requests.append(Request(index=index, keys=keys, rows=40, new=False))
    return [request.batch(tables) for request in requests]


def rows_of(batch: Any) -> list[list[tuple[int, int]]]:
    """Key and amount of each row, by table."""
    return [
        list(zip(numbers.tolist(), amounts.tolist(), strict=True))
        for numbers, amounts in zip(batch.numbers, batch.amounts, strict=True)
    ]


def test_a_batch_is_the_same_in_every_process_and_a_tenth_of_it_new() -> None:
    from resident.inputs import Request

    request = Request(index=7, keys=1000, rows=200, new=False)
    (first,), (again,) = request.batch(1).numbers, request.batch(1).numbers
    assert first.tolist() == again.tolist()
    assert request.keys_after == 1020
    assert sorted(number for number in first.tolist() if number >= 1000) == [*range(1000, 1020)]
    assert (
        Request(index=8, keys=1000, rows=200, new=False).batch(1).numbers[0].tolist()
        != first.tolist()
    )


def test_totals_are_those_of_all_rows_so_far() -> None:
    from resident.inputs import Emitted, Totals

    expected, counts, sums = Totals(), Counter[int](), Counter[int]()
    for batch in batches(1):
        (rows,) = rows_of(batch)
        for key, amount in rows:
            counts[key] += 1
            sums[key] += amount
        touched = {key for key, _ in rows}
        check = sum(counts[key] + sums[key] for key in touched)
        assert expected.after(batch) == Emitted(rows=len(touched), check=check)
        assert expected.state_rows() == len(counts)


def test_first_rows_are_those_of_keys_that_no_batch_had() -> None:
    from resident.inputs import Emitted, FirstRows

    expected, seen = FirstRows(), set[int]()
    for batch in batches(1):
        (rows,) = rows_of(batch)
        fresh = {key for key, _ in rows} - seen
        seen |= fresh
        assert expected.after(batch) == Emitted(rows=len(fresh), check=sum(fresh))
        assert expected.state_rows() == len(seen)


def test_pairs_are_those_that_a_row_of_the_batch_completes() -> None:
    from resident.inputs import Emitted, Pairs

    expected = Pairs()
    known: tuple[defaultdict[int, list[int]], ...] = (defaultdict(list), defaultdict(list))
    for batch in batches(2):
        pairs = []
        for side, rows in enumerate(rows_of(batch)):
            for key, amount in rows:
                pairs += [amount + other for other in known[1 - side][key]]
                known[side][key].append(amount)
        assert expected.after(batch) == Emitted(rows=len(pairs), check=sum(pairs))
        kept = sum(len(amounts) for side in known for amounts in side.values())
        assert expected.state_rows() == kept


def test_a_wrong_row_is_no_result() -> None:
    from common.rounds import WrongStateError
    from resident.measure import Filled

    query = plans()["group-by"].query
    fields = {
        "request": {"index": 3, "keys": 0, "rows": 10, "new": True},
        "state_rows": 10,
        "memory_bytes": 900,
    }
    right = {"rows": 10, "check": 10 + sum(31 * key + 3 for key in range(10))}
    stands = Filled(expected=query.expected())
    stands.take(query, "holdfast", {**fields, "emitted": right})
    assert (stands.keys, stands.batches, stands.memory_bytes) == (10, 4, 900)
    for wrong in ({"emitted": {**right, "check": 0}}, {"emitted": right, "state_rows": 11}):
        with pytest.raises(WrongStateError, match="group-by on holdfast, batch 3: expected"):
            Filled(expected=query.expected()).take(query, "holdfast", {**fields, **wrong})


def test_resident_memory_is_what_state_adds_to_a_process_without() -> None:
    from resident.measure import Base, Seen, figures

    def batch(reported_mib: int, peak_mib: int, batch_ms: int) -> dict[str, Any]:
        return {
            "memory_bytes": reported_mib * MIB,
            "peak_native_kib": peak_mib << 10,
            "batch_ms": batch_ms,
            "own": {"holdfastColdReads": 7},
        }

    seen = Seen(
        batches=[batch(60, 110, 9), batch(50, 105, 8), batch(66, 90, 7), batch(64, 94, 6)],
        trimmed_kib=70 << 10,
    )
    alone = [(9, 1, 99), (11, 1, 50), (12, 2, 14), (14, 4, 16), (10, 0, 10)]
    base = Base.of(
        [
            {"native_kib": native << 10, "memory_bytes": state * MIB, "peak_native_kib": peak << 10}
            for native, state, peak in alone
        ]
    )
    found = figures(seen, base=base, target_kib=64 << 10, state_bytes=640 * MIB)
    assert base.median_kib == 10 << 10
    assert found["alone"] == [2 / 64], "the first two batches do not count there either"
    assert found["beyond"] == [82 / 64], "the most of both"
    assert found["state"] == [10]
    assert found["reported"] == [66 / 64]
    assert found["resident"] == [100 / 64]
    assert found["resident_later"] == [84 / 64], "the first two batches open the stores"
    assert found["trimmed"] == [60 / 64]
    assert found["batch_ms"] == [9, 8, 7, 6]
    assert found["reads"] == [7] * 4


def test_every_operator_gets_a_tenth_of_its_state_and_providers_the_same() -> None:
    found = plans()
    assert [*found] == ["group-by", "drop-duplicates", "inner-join", "transform-with-state"]
    plan = found["inner-join"]
    assert plan.providers == ("rocksdb", "rocksdb-changelog", "holdfast")
    assert plan.state_bytes == 10 * 128 * MIB
    assert (plan.batches, plan.rows) == (30, 128 * 300)
    assert plans(target_mib=8, query="group-by")["group-by"].state_bytes == 80 * MIB
    assert [*plans(query="groupby-count")] == []
