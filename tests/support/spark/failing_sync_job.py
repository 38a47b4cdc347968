"""A job whose first sync in batch 1 fails. Run as a program under ``failing_sync.c``.

It prints ``failed: <message>`` for the run that must fail, then runs again in the same session.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame

import holdfast
from support.spark.queries import STATE, builder, source


def main() -> None:
    """Run the query twice on the folder given as the only argument."""
    folder = Path(sys.argv[1])
    marker = Path(os.environ["FAILING_SYNC_MARKER"])
    output = folder / "output"
    output.mkdir()
    # Every segment fills a file, whose seal syncs it: that sync fails.
    base = holdfast.configure(builder("local[2]", folder / "warehouse"))
    session = base.config(STATE + "holdfast.maxFileBytes", "1").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    armed = True

    def publish(batch: DataFrame, batch_id: int) -> None:
        if armed and batch_id == 1:
            marker.touch()
        rows = sorted((row["key"], row["count"]) for row in batch.collect())
        (output / f"{batch_id}.txt").write_text(repr(rows))

    def run() -> None:
        query = (
            source(session, folder / "input")
            .groupBy("key")
            .count()
            .writeStream.outputMode("complete")
            .option("checkpointLocation", str(folder / "checkpoint"))
            .trigger(availableNow=True)
            .foreachBatch(publish)
            .start()
        )
        query.awaitTermination()

    try:
        run()
    except StreamingQueryException as error:
        print("failed:", str(error).replace("\n", " "))
        print("committed:", (folder / "checkpoint" / "commits" / "1").exists())
    armed = False
    run()
    session.stop()


if __name__ == "__main__":
    main()
