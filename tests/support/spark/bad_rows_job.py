"""Queries that bad rows break, in one application. Run as a program.

Reads a line of JSON for each run from its standard input, and answers with another. It has the
arguments of `bad_rows.run`, ``change`` as a name, ``image``, a folder that first takes the place of
the run's, and ``send``, values that first go to the topic.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException

import holdfast
from support.spark.bad_rows import PROGRAMS, letters, output, run
from support.spark.queries import builder, configured


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--preload", help="library to load into the driver's JVM")
    args = parser.parse_args()
    if args.preload:
        os.environ["LD_PRELOAD"] = args.preload
    settings = configured(builder(args.master, args.folder / "warehouse"), args.conf)
    spark = holdfast.configure(
        settings,
        bad_rows="dead-letter",
        dead_letters=args.folder / "dead",
        bad_rows_max_ratio=0.1,
    ).getOrCreate()
    spark.sparkContext.setLogLevel("WARN")
    for line in sys.stdin:
        wanted: dict[str, Any] = json.loads(line)
        folder = Path(wanted.pop("folder"))
        if image := wanted.pop("image", None):
            shutil.rmtree(folder)
            shutil.copytree(image, folder)
        if values := wanted.pop("send", None):
            sent = spark.createDataFrame([(value,) for value in values], "value string")
            to = {"kafka.bootstrap.servers": wanted["servers"], "topic": "bad"}
            sent.write.format("kafka").options(**to).save()
        change = PROGRAMS[wanted.pop("change", "first")]
        answer: dict[str, Any] = {"error": None}
        try:
            answer["progress"] = run(spark, folder, change=change, **wanted)
        except StreamingQueryException as e:
            answer["error"] = str(e)
        answer["letters"] = letters(folder / "dead")
        sink, servers = wanted.get("sink"), wanted.get("servers")
        answer["rows"] = output(spark, folder / "out", sink, servers)
        answer["again"] = output(spark, folder / "again", None, None)
        print(json.dumps(answer, default=str), flush=True)
    spark.stop()


if __name__ == "__main__":
    main()
