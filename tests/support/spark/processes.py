"""The processes of a Spark application that runs in a session of its own, from /proc."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path

from harness.process import running_in_session


def status(stat: Path) -> list[str]:
    """The fields after the name in a stat file of /proc: state, parent, ..."""
    return stat.read_text().rpartition(")")[2].split()


def having(session: int, marker: str) -> list[int]:
    """Processes of a session whose command line has a marker, by number."""
    found = []
    for process in sorted(running_in_session(session)):
        with suppress(FileNotFoundError, ProcessLookupError):
            if marker.encode() in Path(f"/proc/{process}/cmdline").read_bytes():
                found.append(process)
    return found


def drivers(session: int) -> list[int]:
    """The JVM of the driver; there is none before it starts."""
    return having(session, "org.apache.spark.deploy.SparkSubmit")


def executors(session: int) -> list[int]:
    """Executors that are processes of their own."""
    return having(session, "CoarseGrainedExecutorBackend")


def workers(session: int) -> list[int]:
    """Python workers; the daemon that forks them looks the same, but is a child of the JVM."""
    daemons = having(session, "pyspark.daemon")
    found = []
    for process in daemons:
        with suppress(FileNotFoundError, ProcessLookupError):
            if int(status(Path(f"/proc/{process}/stat"))[1]) in daemons:
                found.append(process)
    return found
