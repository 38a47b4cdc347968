"""Some micro-batches of several queries, with Holdfast, on the present PySpark.

``upgrade_job.py FOLDER FIRST LAST CASE...`` gives each query the batches from FIRST (inclusive) to
LAST (exclusive). It writes the rows of every batch into ``FOLDER/<case>/rows-FIRST.json``.
Checkpoints of an earlier call are continued, on another Spark minor perhaps.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from support.spark.cases import CASES
from support.spark.operator_inputs import BATCHES, events
from support.spark.queries import (
    Batches,
    drain,
    local_session,
    require_served_by,
    settings,
    source,
    write_batch,
)

PARTITIONS = 2


def main(folder: Path, first: int, last: int, names: list[str]) -> None:
    spark = local_session(folder / "warehouse")
    spark.conf.set("spark.sql.shuffle.partitions", str(PARTITIONS))
    for name in names:
        case = CASES[name]
        inputs = {}
        for number, stream in enumerate(case.streams):
            path = folder / name / stream
            path.mkdir(parents=True, exist_ok=True)
            batches = events(number, batches=BATCHES)
            for batch in range(first, last):
                write_batch(path, batch, batches[batch])
            inputs[stream] = source(spark, path)
        rows: Batches = {}
        checkpoint = folder / name / "checkpoint"
        with settings(spark, case.settings):
            drain(case.query(inputs), checkpoint=checkpoint, mode=case.mode, into=rows)
        require_served_by("holdfast", checkpoint)
        text = json.dumps({batch: [repr(row) for row in rows[batch]] for batch in sorted(rows)})
        (folder / name / f"rows-{first}.json").write_text(text)
    spark.stop()


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4:])
