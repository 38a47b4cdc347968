"""A query that isolates failures, and its restarts. Run as a program.

Each phase feeds batches and runs the query until they are used up: ``bad:0-6`` with the broken
program, ``good:6-7`` with the repaired one. ``bad!:0-6`` expects that the query fails, and
``bad/off:0-6`` does not isolate. ``run:...`` is a command of ``holdfast parked``, and ``see`` keeps
pages of Spark's UI.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import shlex
import time
from pathlib import Path
from typing import Any

from pyspark.errors import StreamingQueryException
from pyspark.sql import SparkSession

import holdfast
from holdfast.cli import local_spark
from holdfast.cli.main import main as cli
from support.reference import monitoring
from support.spark.isolation import PARTITIONS, feed, results, run, state
from support.spark.queries import STATE, builder, configured
from support.spark.ui import fetched

#: More than a job has.
STAGES = 900
#: Read when a query starts.
ISOLATES = STATE + "holdfast.isolateFailures"
#: A UI next to other tests' UIs.
UI = {"spark.ui.enabled": "true", "spark.ui.port": "0"}


def command(spark: SparkSession, checkpoint: str, line: str) -> list[str]:
    """Runs ``holdfast parked`` in this process; returns its lines."""
    local_spark.session = lambda *_, **__: contextlib.nullcontext(spark)
    with contextlib.redirect_stdout(io.StringIO()) as said:
        assert cli(["parked", checkpoint, *shlex.split(line)]) == 0
    return said.getvalue().splitlines()


def pages(spark: SparkSession, run: str) -> list[str]:
    """Metrics for Prometheus, and the page of a query in the tab of Holdfast."""
    jvm: Any = spark._jsc
    jvm.sc().listenerBus().waitUntilEmpty()
    paths = (monitoring.scrape_config()["metrics_path"], f"/holdfast/start/?run={run}")
    address = spark.sparkContext.uiWebUrl
    return [fetched(f"{address}{path}") for path in paths]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--master", default="local[2,4]")
    parser.add_argument("--folder", type=Path, required=True)
    parser.add_argument("--sink", default="foreach")
    parser.add_argument("--query", default="counts")
    parser.add_argument("--rerun", default="fail")
    parser.add_argument("--ratio", type=float, default=0.75, help="partitions that may be parked")
    parser.add_argument("--once", action="store_true", help="each phase is one batch")
    parser.add_argument("--checkpoint", help="default: the folder's own")
    parser.add_argument("--conf", action="append", default=[], metavar="KEY=VALUE")
    parser.add_argument("--unread", action="store_true", help="without a look at the state")
    parser.add_argument("--wide", action="store_true", help="rows for hundreds of partitions")
    parser.add_argument("--block", type=int, default=-1, help="batch behind whose write it waits")
    parser.add_argument("--fail", type=int, default=-1, help="batch behind whose write it fails")
    parser.add_argument("--log", default="ERROR", help="level")
    parser.add_argument("phases", nargs="+")
    args = parser.parse_args()
    checkpoint = args.checkpoint or str(args.folder / "checkpoint")
    settings = builder(args.master, args.folder / "warehouse").config(
        "spark.sql.shuffle.partitions", str(PARTITIONS)
    )
    if "see" in args.phases:
        settings = settings.config(map=monitoring.settings() | UI)
    spark = holdfast.configure(
        configured(settings, args.conf),
        isolate_failures=True,
        isolation_rerun=args.rerun,
        isolation_max_ratio=args.ratio,
    ).getOrCreate()
    spark.sparkContext.setLogLevel(args.log)

    def after(batch: int) -> None:
        if batch == args.fail:
            raise RuntimeError("the sink fails")
        if batch == args.block:
            (args.folder / "blocked").touch()
            time.sleep(240)

    progress: list[dict[str, Any]] = []
    commands = []
    for phase in args.phases:
        kind, _, batches = phase.partition(":")
        if kind == "run":
            commands.append(command(spark, checkpoint, batches))
            continue
        if kind == "see":
            (args.folder / "pages.json").write_text(json.dumps(pages(spark, progress[-1]["runId"])))
            continue
        begin, _, end = batches.partition("-")
        kind, _, switch = kind.partition("/")
        spark.conf.set(ISOLATES, "false" if switch == "off" else "true")
        feed(args.folder / "input", range(int(begin), int(end)), wide=args.wide)
        failure = ""
        try:
            query = run(
                spark,
                args.folder,
                query=args.query,
                program=kind.rstrip("!"),
                sink=args.sink,
                checkpoint=checkpoint,
                once=args.once,
                may_park=not kind.endswith("!"),
                after=after,
            )
            progress += [json.loads(one.json) for one in query.recentProgress]
        except StreamingQueryException as e:
            failure = str(e)
        assert bool(failure) == kind.endswith("!"), failure or "the query did not fail"
    found = {
        "rows": results(spark, args.folder, args.sink),
        "state": None if args.unread else state(spark, args.folder, args.query, checkpoint),
    }
    (args.folder / "progress.json").write_text(json.dumps(progress))
    (args.folder / "commands.json").write_text(json.dumps(commands))
    (args.folder / "found.json").write_text(json.dumps(found))
    tracker = spark.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in range(STAGES)]
    failed = sum(stage.numFailedTasks for stage in stages if stage)
    (args.folder / "failed.txt").write_text(str(failed))
    spark.stop()


if __name__ == "__main__":
    main()
