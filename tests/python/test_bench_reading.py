"""The rows of the suite ``reading``, and the state that they have to lead to."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

BENCHES = Path(__file__).parents[2] / "benches"


def test_every_key_comes_once_and_the_last_batch_changes_some_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("pyarrow")
    monkeypatch.syspath_prepend(BENCHES)
    from reading import keys

    of_all = 20_001
    *filled, changed = keys.files(of_all)
    counts: Counter[str] = Counter()
    sums: Counter[str] = Counter()
    for table in filled:
        counts.update(table["key"].to_pylist())
    assert {*counts.values()} == {1}
    assert len(counts) == of_all
    assert len({*changed["key"].to_pylist()}) == keys.CHANGED
    counts.update(changed["key"].to_pylist())
    for table in (*filled, changed):
        for row in table.to_pylist():
            sums[row["key"]] += row["value"]
    numbers = keys.numbers(of_all)
    names = keys.texts(numbers).to_pylist()
    expected = keys.expected(numbers, of_all)
    assert [counts[name] for name in names] == expected[0].tolist()
    assert [sums[name] for name in names] == expected[1].tolist()
