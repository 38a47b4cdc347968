"""What saves the JVMs of the tests processor time; they start about a hundred.

Spark's classes are in a file that they map, as a JVM has them after start-up (class data sharing,
JEP 350): loading and verifying them takes half of the time of an application that lives for some
seconds. A JVM with another class path than the one that wrote the file, or without the file, starts
as ever.

Hadoop's local file system starts no processes, see ``LocalFiles.java``.

Run as ``class_archive.py FOLDER`` it is the application whose classes are taken; the folder is for
scratch.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

import pyspark

from support import TESTS, environment, program
from support.spark.java_side import QUICK_START, SOURCES, compile_jar, tool

WAIT_SECONDS = 300
# What the JVM says of an archive that it does not use goes to standard output otherwise.
QUIET = "-Xlog:disable -Xlog:all=error:stderr"
PROCESSES = ("driver", "executor")
LOCAL_FILES = "LocalFiles"


def archive() -> Path:
    """Where the file is, or will be: beside what else is built, by all that it depends on."""
    version = subprocess.run(
        [tool("java"), "-version"], capture_output=True, check=True, timeout=WAIT_SECONDS
    )
    spark = f"{pyspark.__file__} {pyspark.__version__} {QUICK_START}"
    source = (SOURCES / f"{LOCAL_FILES}.java").read_bytes()
    key = hashlib.sha256(version.stderr + spark.encode() + source).hexdigest()[:16]
    return TESTS.parent / "build" / "tests" / f"spark-classes-{key}.jsa"


def jar(file: Path) -> Path:
    """The jar with the local file system, beside the archive."""
    return file.with_suffix(".jar")


def quick_start(file: Path) -> dict[str, str]:
    """The environment of applications that live for some seconds or minutes."""
    return _environment(file, f"{' '.join(QUICK_START)} -XX:SharedArchiveFile={file} {QUIET}")


def _environment(file: Path, options: str) -> dict[str, str]:
    # At the end of the class path, which the archive has to know.
    return {
        "SPARK_DIST_CLASSPATH": str(jar(file)),
        **java_options(
            options,
            {
                "spark.hadoop.fs.file.impl": f"{LOCAL_FILES}$OfFileSystem",
                "spark.hadoop.fs.AbstractFileSystem.file.impl": f"{LOCAL_FILES}$OfFileContext",
            },
        ),
    }


def java_options(options: str, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """The environment that gives drivers and executors options of the JVM, and settings."""
    of_jvms = {f"spark.{process}.defaultJavaOptions": options for process in PROCESSES}
    conf = (f"--conf '{key}={value}'" for key, value in (of_jvms | (settings or {})).items())
    return {"PYSPARK_SUBMIT_ARGS": f"{' '.join(conf)} pyspark-shell"}


def ensure(file: Path) -> None:
    """Write the jar and the file, unless they are there.

    Of several processes one does. The others wait for the jar, and start without the file, which
    takes a minute.
    """
    file.parent.mkdir(parents=True, exist_ok=True)
    with jar(file).with_suffix(".jar.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not jar(file).exists():
            with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
                compile_jar(Path(scratch), LOCAL_FILES).replace(jar(file))
    with file.with_suffix(".lock").open("w") as lock, suppress(BlockingIOError):
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if not file.exists():
            _write(file)


def _write(file: Path) -> None:
    with tempfile.TemporaryDirectory(dir=file.parent) as scratch:
        written = Path(scratch, "classes.jsa")
        options = f"{' '.join(QUICK_START)} -XX:ArchiveClassesAtExit={written} {QUIET}"
        done = subprocess.run(
            [sys.executable, program("spark/class_archive.py"), scratch],
            env=environment(_environment(file, options)),
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
    """Run what most applications of the tests have in common."""
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
