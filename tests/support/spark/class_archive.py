"""Saves processor time in the JVMs of the tests, about a hundred.

Spark's classes are in a file that they map, in their form after start-up (class data sharing, JEP
350): loading and verifying them takes half of the time of an application that lives for some
seconds. A JVM without the file, or whose class path does not begin with Spark's, starts as usual.
Hadoop's local file system starts no processes, see ``LocalFiles.java``.

Run as ``class_archive.py FOLDER`` it is the application whose classes are taken; the folder is for
scratch.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyspark

from support import environment, program
from support.spark.java_side import BUILT, QUICK_START, SOURCES, compile_jar, tool

WAIT_SECONDS = 300
# Otherwise the JVM reports an unused archive on standard output.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
PROCESSES = ("driver", "executor")
LOCAL_FILES = "LocalFiles"


def archive() -> Path:
    """The place of the file among the built files, by all its inputs."""
    version = subprocess.run(
        [tool("java"), "-version"], capture_output=True, check=True, timeout=WAIT_SECONDS
    )
    spark = f"{pyspark.__file__} {pyspark.__version__} {QUICK_START}"
    key = hashlib.sha256(version.stderr + spark.encode()).hexdigest()[:16]
    return BUILT / f"spark-classes-{key}.jsa"


def jar() -> Path:
    """The place of the jar with the local file system."""
    key = hashlib.sha256((SOURCES / f"{LOCAL_FILES}.java").read_bytes()).hexdigest()[:16]
    return BUILT / f"local-files-{key}.jar"


def options(file: Path) -> str:
    """Options of a JVM that lives for some seconds or minutes."""
    return f"{' '.join(QUICK_START)} -XX:SharedArchiveFile={file} {QUIET}"


def quick_start(file: Path) -> dict[str, str]:
    """The environment of applications with such JVMs."""
    return {
        "SPARK_DIST_CLASSPATH": str(jar()),
        # For Spark's own servers, and for the JVM that makes the command of another.
        "SPARK_DAEMON_JAVA_OPTS": options(file),
        "SPARK_LAUNCHER_OPTS": options(file),
        **java_options(
            options(file),
            {
                "spark.hadoop.fs.file.impl": f"{LOCAL_FILES}$OfFileSystem",
                "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{LOCAL_FILES}$OfFileContext",
            },
        ),
    }


def on_class_path(*more: Path) -> dict[str, str]:
    """The environment of applications with these on the class paths of their JVMs.

    They are last: the archive does not help a JVM whose class path begins with something else.
    """
    known = filter(None, [os.environ.get("SPARK_DIST_CLASSPATH")])
    return {"SPARK_DIST_CLASSPATH": os.pathsep.join([*known, *map(str, more)])}


def java_options(options: str, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment that gives drivers and executors options of the JVM, and settings."""
    of_jvms = {f"spark.{process}.defaultJavaOptions": options for process in PROCESSES}
    conf = (f"--conf '{key}={value}'" for key, value in (of_jvms | (settings or {})).items())
    return {"PYSPARK_SUBMIT_ARGS": f"{' '.join(conf)} pyspark-shell"}


def ensure(file: Path) -> None:
    """Write the jar and the file, unless they exist.

    One of several processes does. The others wait for the jar, and start without the file, which
    takes a minute.
    """
    if not jar().exists():
        compile_jar(LOCAL_FILES, jar())
    with file.with_suffix(".lock").open("w") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not file.exists():
            _write(file)


def _write(file: Path) -> None:
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        written = Path(scratch, "classes.jsa")
        writing = f"{' '.join(QUICK_START)} -XX:ArchiveClassesAtExit={written} {QUIET}"
        done = subprocess.run(
            [sys.executable, program("spark/class_archive.py"), scratch],
            env=environment(java_options(writing) | {"SPARK_DIST_CLASSPATH": ""}),
            capture_output=True,
            text=True,
            timeout=WAIT_SECONDS,
            check=False,
        )
        if done.returncode != 0 or not written.exists():
            said = (done.stdout + done.stderr)[-2000:]
            warnings.warn(f"Spark's classes were not archived: {said}", stacklevel=2)
            return
        written.replace(file)


def load_classes(folder: Path) -> None:
    """Run the common part of most applications of the tests."""
    from pyspark.sql import functions as F

    from support.spark.queries import local_session

    (folder / "in").mkdir()
    rows = [{"key": key, "value": key} for key in range(4)]
    (folder / "in" / "rows.json").write_text("\n".join(map(json.dumps, rows)))
    spark = local_session(folder / "warehouse")
    counted = (
        spark.readStream.schema("key int, value int")
        .json(str(folder / "in"))
        .groupBy("key")
        .agg(F.count("*").alias("count"), F.sum("value").alias("sum"))
    )
    query = (
        counted.writeStream.outputMode("complete")
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .foreachBatch(lambda rows, _: rows.write.parquet(str(folder / "out")))
        .start()
    )
    query.awaitTermination()
    spark.read.parquet(str(folder / "out")).mapInArrow(
        lambda batches: batches, counted.schema
    ).collect()
    spark.stop()


if __name__ == "__main__":
    load_classes(Path(sys.argv[1]))
