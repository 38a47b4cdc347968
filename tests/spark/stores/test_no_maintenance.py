"""State keeps to its memory although Spark's maintenance does not come."""

from __future__ import annotations

import json
from pathlib import Path

from support.spark.counted_texts import VALUE_BYTES
from support.spark.jobs import run_job
from support.spark.no_maintenance_job import KEYS, KEYS_A_BATCH
from support.spark.queries import STATE


def test_a_store_whose_memory_is_short_is_merged_beside_its_batches(tmp_path: Path) -> None:
    target = KEYS * VALUE_BYTES // 6
    settings = {STATE + "holdfast.targetMemoryBytes": str(target)}
    printed = run_job("spark/no_maintenance_job.py", folder=tmp_path, settings=settings)
    batches = json.loads(printed[-1])
    # A batch takes more than a tenth of the memory.
    assert target // 11 < KEYS_A_BATCH * VALUE_BYTES
    assert max(used for used, _, _ in batches) <= target * 23 // 20, batches
    # Runs took its changelogs in, some of them as delta runs.
    assert max(runs for _, runs, _ in batches) > 1
    assert max(unmerged for _, _, unmerged in batches) < 20
