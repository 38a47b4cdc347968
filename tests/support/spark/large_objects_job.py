"""A streaming job whose state goes to S3 in parts. Run as a program.

Its input is one file per batch, with the columns ``key`` and ``payload``; the state is the greatest
payload of every key. Batch 1 fails when all of its tasks are done. The state of batch 0 is written
to ``state.parquet`` in the folder, and the objects at each time to ``seen.json``.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

import holdfast
from support.spark.queries import STATE, builder, configured, source
from support.spark.remote_folder import RemoteFolder

GIVE_UP_SECONDS = 100


class Bucket:
    """S3A's view of the checkpoint's bucket. Works after the end of Spark, too."""

    def __init__(self, folder: RemoteFolder) -> None:
        assert folder.spark._jvm is not None
        self._statistics = folder.spark._jvm.org.apache.hadoop.fs.statistics.IOStatisticsSupport
        self._files = folder.file_system()
        self._state = folder.path("state/holdfast")

    def count(self, name: str) -> int:
        """One of S3A's counters; a stream's are added at its end."""
        snapshot = self._statistics.snapshotIOStatistics(self._files.getIOStatistics())
        return int(snapshot.counters()[name])

    def pending_uploads(self) -> int:
        uploads = self._files.listUploads(None)
        pending = 0
        while uploads.hasNext():
            uploads.next()
            pending += 1
        return pending

    def wait_until_put(self, size: int) -> None:
        """Waits until `size` bytes were put: S3A uploads parts on threads of its own."""
        deadline = time.monotonic() + GIVE_UP_SECONDS
        while self.count("object_put_bytes") < size:
            if time.monotonic() > deadline:
                found = self.count("object_put_bytes")
                raise RuntimeError(f"only {found} of {size} bytes were put")
            time.sleep(0.02)

    def seen(self) -> dict[str, Any]:
        """Sizes of the state objects, and the parts and pending uploads."""
        objects = []
        if self._files.exists(self._state):
            objects = sorted(entry.getLen() for entry in self._files.listStatus(self._state))
        return {
            "objects": objects,
            "pending": self.pending_uploads(),
            "parts": self.count("multipart_upload_part_put"),
            "completed": self.count("multipart_upload_completed"),
        }


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--checkpoint", required=True)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument(
        "--full-bytes", type=int, nargs=2, required=True, help="of the full parts of each batch"
    )
    args = parser.parse_args()

    session = holdfast.configure(builder("local[2]", args.folder / "warehouse"))
    # Only batches write: no base images.
    session = session.config(STATE + "minDeltasForSnapshot", "100")
    spark = configured(session, args.conf).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    bucket = Bucket(RemoteFolder(spark, args.checkpoint))
    seen = {}

    def publish(batch: DataFrame, batch_id: int) -> None:
        before = bucket.count("object_put_bytes")
        batch.count()
        bucket.wait_until_put(before + args.full_bytes[batch_id])
        seen[f"tasks of {batch_id} done"] = bucket.seen()
        if batch_id == 1:
            raise RuntimeError("batch 1 fails")

    query = (
        source(spark, args.folder / "input")
        .groupBy("key")
        .agg(F.max("payload").alias("payload"))
        .writeStream.outputMode("update")
        .option("checkpointLocation", args.checkpoint)
        .trigger(availableNow=True)
        .foreachBatch(publish)
        .start()
    )
    try:
        query.awaitTermination()
        sys.exit("batch 1 did not fail")
    except StreamingQueryException as error:
        if "batch 1 fails" not in str(error):
            raise
    seen["failed"] = bucket.seen()
    state = spark.read.format("statestore").option("batchId", 0).load(args.checkpoint)
    rows = state.select("key.key", F.col("value.max").alias("payload"))
    rows.write.parquet(str(args.folder / "state.parquet"))
    spark.stop()
    seen["ended"] = bucket.seen()
    (args.folder / "seen.json").write_text(json.dumps(seen))


if __name__ == "__main__":
    main()
