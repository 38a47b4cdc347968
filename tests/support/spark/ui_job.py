"""An application with Spark's UI, which follows its input. Run as a program.

``ui_job FOLDER [KEY=VALUE ...]``: each line of input is a word with arguments, each line of output
its answer. The first has the address of the UI. Files of `FOLDER` are the input of queries.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import cloudpickle
from pyspark.sql import DataFrame, SparkSession

import holdfast
from support.regional import pipelines
from support.regional.pipelines import COUNTED, RunningCount
from support.spark.queries import STATE, builder, source
from support.spark.regional_input import regional_source

#: Attempts in which a region fails.
FAILURES = 2


class FailsForOne(RunningCount):
    """Fails for one region, in two attempts from the second batch on."""

    def __init__(self, marks: Path, region: str, cause: str) -> None:
        self.marks = str(marks)
        self.failing = region
        self.cause = cause

    def process(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        if self.region == self.failing and max(batch.column("id").to_pylist()) >= 1_000:
            for number in range(FAILURES):
                mark = Path(self.marks, str(number))
                if not mark.exists():
                    mark.touch()
                    raise RuntimeError(self.cause)
        yield from super().process(batch)


class Application:
    """The methods that words of the input call."""

    def __init__(self, folder: Path, settings: dict[str, str]) -> None:
        self.folder = folder
        wanted = builder("local[2,4]", folder / "warehouse").config(
            map={
                "spark.ui.enabled": "true",
                "spark.ui.showConsoleProgress": "false",
                "spark.ui.port": "0",
                "spark.sql.shuffle.partitions": "2",
                # A clean-up after every third batch.
                "spark.sql.streaming.minBatchesToRetain": "3",
                "spark.sql.streaming.ratioExtraSpaceAllowedInCheckpoint": "1.0",
                # Files are soon full, so that some are closed.
                STATE + "holdfast.maxFileBytes": "20000",
                **settings,
            }
        )
        self.spark: SparkSession = holdfast.configure(wanted).getOrCreate()
        self.spark.sparkContext.setLogLevel("WARN")
        self.queries: dict[str, Any] = {}

    def where(self) -> dict[str, str | None]:
        context = self.spark.sparkContext
        return {"url": context.uiWebUrl, "application": context.applicationId}

    def query(self, name: str, *more: str) -> str:
        """Count the rows of a folder by key; further words belong to a name."""
        rows: DataFrame = source(self.spark, self.folder / name)
        self.queries[name] = (
            rows.groupBy("key")
            .count()
            .writeStream.outputMode("update")
            .queryName(" ".join(more) or name)
            .option("checkpointLocation", str(self.folder / f"{name}-checkpoint"))
            .format("noop")
            .start()
        )
        return str(self.queries[name].runId)

    def stateless(self, name: str) -> str:
        rows = source(self.spark, self.folder / name)
        self.queries[name] = (
            rows.writeStream.option("checkpointLocation", str(self.folder / f"{name}-checkpoint"))
            .format("noop")
            .start()
        )
        return str(self.queries[name].runId)

    def sets_aside(self, name: str) -> str:
        """A query that throws for keys that are 0, without state."""
        settings = {"badRows": "dead-letter", "deadLetters": str(self.folder / "dead")}
        for key, value in settings.items():
            self.spark.conf.set(f"{STATE}holdfast.{key}", value)
        rows = source(self.spark, self.folder / name).selectExpr("1 div key")
        self.queries[name] = (
            rows.writeStream.option("checkpointLocation", str(self.folder / f"{name}-checkpoint"))
            .format("noop")
            .queryName(name)
            .start()
        )
        return str(self.queries[name].runId)

    def drain(self, name: str) -> int:
        """Wait until a query has read all input, and until listeners know."""
        self.queries[name].processAllAvailable()
        return self.settle()

    def settle(self) -> int:
        self.spark._jsc.sc().listenerBus().waitUntilEmpty()
        return 0

    def progress(self, name: str) -> Any:
        """Spark's progress of the batches of a query."""
        found = [json.loads(one.json) for one in self.queries[name].recentProgress]
        # While a query is idle Spark adds entries that no listener gets.
        return [one for one in found if "addBatch" in one["durationMs"]]

    def misinform(self) -> int:
        """Send listeners an event that the tab cannot keep, twice."""
        jvm: Any = self.spark._jvm
        opened = getattr(jvm.io.holdfast.spark.ui, "UiEvents$PipelineOpened")
        for _ in range(2):
            self.spark._jsc.sc().listenerBus().post(opened(None, "pipeline", "folder", 1))
        return self.settle()

    def stop(self, name: str) -> int:
        self.queries[name].stop()
        return self.settle()

    def pipeline(self, name: str, region: str, *cause: str) -> int:
        """Run a pipeline over all input, in which a region fails."""
        marks = self.folder / f"{name}-marks"
        marks.mkdir()
        query = (
            holdfast.regional(regional_source(self.spark, self.folder / name), region_by="region")
            .apply(FailsForOne(marks, region, " ".join(cause)), schema=COUNTED, name="count")
            .write_parquet(self.folder / f"{name}-out")
            .start(self.folder / f"{name}-checkpoint", name=name, trigger={"availableNow": True})
        )
        query.awaitTermination()
        return self.settle()

    def again(self, *settings: str) -> dict[str, str | None]:
        """End the application, and begin another one in the same JVM."""
        self.spark.stop()
        self.__init__(self.folder, dict(one.split("=", 1) for one in settings))  # type: ignore[misc]
        return self.where()

    def end(self) -> int:
        self.spark.stop()
        return 0


def main() -> None:
    for module in (pipelines, sys.modules[__name__]):
        cloudpickle.register_pickle_by_value(module)
    folder, *settings = sys.argv[1:]
    application = Application(Path(folder), dict(one.split("=", 1) for one in settings))
    print(json.dumps(application.where()), flush=True)
    for line in sys.stdin:
        word, *arguments = json.loads(line)
        print(json.dumps(getattr(application, word)(*arguments)), flush=True)


if __name__ == "__main__":
    main()
