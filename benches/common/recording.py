"""Flight recordings of the measured JVMs: where they spend their time."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def flight_recording(folder: Path | None, name: str) -> dict[str, str]:
    """Return settings of Spark that start a recording with its JVM; none without folder.

    The recording goes to ``<name>.jfr`` in the folder, for the JDK's ``jfr``.
    """
    if folder is None:
        return {}
    file = folder.resolve() / f"{name}.jfr"
    return {
        "spark.driver.extraJavaOptions": (
            f"-XX:StartFlightRecording=settings=profile,filename={file}"
        )
    }


def end_recordings(spark: SparkSession) -> None:
    """Write the recording of this session's JVM, if there is one."""
    assert spark._jvm is not None
    recorder = spark._jvm.jdk.jfr.FlightRecorder
    if recorder.isInitialized():
        for recording in recorder.getFlightRecorder().getRecordings():
            recording.stop()
