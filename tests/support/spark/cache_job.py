"""A job whose queries on an object store run before and after state has left memory.

Run as a program, it prints as one line of JSON the bytes in the executor's local cache after each,
and once its session has ended; and the JVM's threads of Holdfast and open files of state, before
and after that.
"""

from __future__ import annotations

import argparse
import json
import os
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import SparkSession
from pyspark.sql import functions as F

import holdfast
from support.spark.queries import (
    EVICTING,
    Batches,
    builder,
    configured,
    drain,
    settings,
    source,
    unload,
)

#: Spark closes stores with the next maintenance, and idle threads end after some seconds.
GIVE_UP_SECONDS = 60


def count(spark: SparkSession, folder: Path, checkpoint: str) -> int:
    """Counts by key; returns the bytes in the local cache then."""
    rows: Batches = {}
    counted = source(spark, folder).groupBy("key").agg(F.count("*").alias("n"))
    drain(counted, checkpoint=checkpoint, mode="update", into=rows)
    if sorted(rows) != [0, 1]:
        raise RuntimeError(f"expected batches 0 and 1, found {sorted(rows)}")
    return cached(spark._jvm)


def cached(jvm: Any) -> int:
    """Bytes in the local cache."""
    return int(jvm.io.holdfast.spark.Native.localCache()[0])


def held(process: Path) -> dict[str, list[str]]:
    """A process in /proc: threads of Holdfast, and open files of state."""
    threads, files = [], []
    for thread in (process / "task").iterdir():
        with suppress(FileNotFoundError, ProcessLookupError):
            threads.append((thread / "comm").read_text().strip())
    for link in (process / "fd").iterdir():
        with suppress(FileNotFoundError):
            files.append(os.readlink(link))
    return {
        "threads": sorted(name for name in threads if name.startswith("holdfast")),
        "files": sorted(f for f in files if "/state/holdfast/" in f or never_had_a_name(f)),
    }


def never_had_a_name(link: str) -> bool:
    """True if an open file in /proc was made without a name, like the local cache."""
    return Path(link).name.startswith("#") and link.endswith(" (deleted)")


def held_in_the_end(process: Path) -> dict[str, list[str]]:
    """The threads and files that remain after a long wait."""
    deadline = time.monotonic() + GIVE_UP_SECONDS
    while any((left := held(process)).values()) and time.monotonic() < deadline:
        time.sleep(0.1)
    return left


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--checkpoints", required=True)
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    args = parser.parse_args()
    session = holdfast.configure(builder("local[2]", args.folder / "warehouse"))
    spark = configured(session, args.conf).getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    folder = args.folder / "input"
    before = count(spark, folder, f"{args.checkpoints}/before")
    unload(spark)
    with settings(spark, EVICTING):
        # On the local disk, which needs no cache.
        local = count(spark, folder, str(args.folder / "local"))
        after = count(spark, folder, f"{args.checkpoints}/after")
    jvm: Any = spark._jvm
    process = Path("/proc", str(jvm.java.lang.ProcessHandle.current().pid()))
    seen: dict[str, Any] = {"before": before, "local": local, "after": after}
    seen["held"] = held(process)
    spark.stop()  # ends the JVM's session, too, so another may begin
    seen["stopped"] = cached(jvm)
    seen["left"] = held_in_the_end(process)
    print(json.dumps(seen))


if __name__ == "__main__":
    main()
