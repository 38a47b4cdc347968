"""The benchmark of state larger than memory: both sides get one limit, and must have one state."""

from __future__ import annotations

import sys
from argparse import Namespace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("rich")

BENCHES = Path(__file__).parents[2] / "benches"
RATIO = 10


@pytest.fixture(autouse=True)
def _benches_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHES), *sys.path])


def plan(**given: Any) -> Any:
    from store import larger

    options = {
        "providers": ["spark", "rocksdb", "rocksdb-changelog", "holdfast"],
        "rounds": 1,
        "keys": None,
        "rows": None,
        "free_rocksdb": False,
        "driver_memory": "2g",
    }
    (found,) = larger.plans(Namespace(**options | given), Path("somewhere"))
    return found


def settings(found: Any, provider: str, round_number: int | None) -> dict[str, str]:
    found.ends[provider] = {"at": {"version": 1, "commit_id": "a", "next_new": 2}}
    spec: dict[str, Any] = found._spec(Path("classes"), provider, round_number)
    del spec["settings"]["spark.driver.extraJavaOptions"]
    return dict(spec["settings"])


def test_memory_is_a_tenth_of_the_state_for_both_sides() -> None:
    found = plan(keys=3_000_000)
    assert found.memory_mib == 32
    holdfast = {"spark.sql.streaming.stateStore.holdfast.targetMemoryBytes": "32m"}
    assert settings(found, "holdfast", 0) == holdfast
    bounded = settings(found, "rocksdb-changelog", 0)
    assert bounded == {
        "spark.sql.streaming.stateStore.rocksdb.boundedMemoryUsage": "true",
        "spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB": "32",
    }
    # There is room for all of it while the store is made.
    filling = settings(found, "rocksdb-changelog", None)
    assert filling["spark.sql.streaming.stateStore.rocksdb.maxMemoryUsageMB"] == str(32 * RATIO)
    assert settings(plan(free_rocksdb=True), "rocksdb-changelog", 0) == {}
    # Spark's default keeps all state on the heap: it has no such limit.
    assert found.providers == ("rocksdb", "rocksdb-changelog", "holdfast")


def test_providers_that_do_not_agree_are_no_result() -> None:
    from common.rounds import WrongStateError

    found = plan()

    def end(counted: int) -> dict[str, Any]:
        return {"counted": counted, "at": {"next_new": 7}}

    found._require_one_state(0, end(5))
    found._require_one_state(0, end(5))
    found._require_one_state(1, end(6))
    with pytest.raises(WrongStateError, match="found \\(6, 7\\)"):
        found._require_one_state(0, end(6))


def test_figures_are_told_by_workload() -> None:
    found = plan(keys=1_000_000)
    batch = {"batch_ms": [2.0], "commit_ms": [1.0], "reads": [0.5], "read_bytes": [9.0]}
    more = {"publish_ms": [3.0], "memory_mib": [found.memory_mib / 2]}
    figures = {"zipf": batch | more, "new": batch | {"maintenance_ms": [8.0]}}
    end = {"touched_keys": 10, "written_bytes": 2240, "peak_bytes": 3 << 20}
    values = found._values(figures, end)
    assert values["zipf_batch_ms"] == values["new_batch_ms"] == [2.0]
    assert "uniform_batch_ms" not in values
    assert values["written"] == [2.0], "of 112 bytes a key"
    assert values["memory"] == [0.5]
    assert values["resident"] == [3.0]
    assert values["maintenance_ms"] == [8.0]
