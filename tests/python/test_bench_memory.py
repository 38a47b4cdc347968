from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("pyarrow")
pytest.importorskip("rich")

BENCHES = Path(__file__).parents[2] / "benches"

# As JDK 17 prints it.
TRACKED = """\
4242:

Native Memory Tracking:

Total: reserved=3072000KB, committed=1510000KB
-                 Java Heap (reserved=1048576KB, committed=1048576KB)
                            (mmap: reserved=1048576KB, committed=1048576KB)

-                     Class (reserved=1051000KB, committed=21424KB)
                            (classes #30000)
                            (malloc=2424KB #62000)

-    Native Memory Tracking (reserved=440000KB, committed=440000KB)
                            (tracking overhead=440000KB)
"""


@pytest.fixture(autouse=True)
def _benches_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHES), *sys.path])


def test_the_categories_of_the_jvm_are_read_and_are_all_of_its_memory() -> None:
    from memory.native import committed

    assert committed(TRACKED) == {
        "Java Heap": 1048576,
        "Class": 21424,
        "Native Memory Tracking": 440000,
    }
    with pytest.raises(ValueError, match="lack 1000 KiB"):
        committed(TRACKED.replace("committed=1510000KB", "committed=1511000KB"))
    with pytest.raises(ValueError, match="does not track"):
        committed("Native memory tracking is not enabled")


def test_growth_is_that_of_the_second_half() -> None:
    from memory.measure import Plan, figures

    plan = Plan(
        folder=Path(),
        providers=("holdfast",),
        rounds=1,
        partitions=20,
        keys=1000,
        batches=600,
        every=100,
    )
    # It grows fast at first, and later by 2 KiB a batch; samples come late.
    samples = [
        {"batch": batch + 3, "beyond_heap_kib": (300 + min(batch, 300)) * 1024 + 2 * batch}
        for batch in range(100, 601, 100)
    ]
    found = figures(plan, samples)
    assert found["growth_kib"] == [pytest.approx(2.0)]
    assert found["mib_100"] == [pytest.approx(400.2, abs=0.1)]
    assert found["mib_600"] == found["end_mib"]
