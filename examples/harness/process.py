"""Run one Spark driver in a session of its own, listen to it, and end it.

The child reports events as JSON lines over a pipe. Its output and errors, and its JVM's, go to a
log file. `SparkChild` and `follow` are for the parent, `Reporter` and `report_to_parent` for the
child.
"""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, TypeVar

from harness.figures import BatchFigures

if TYPE_CHECKING:
    from pyspark.sql.streaming import StreamingQuery
    from pyspark.sql.streaming.listener import StreamingQueryProgress

Spec = TypeVar("Spec")

#: The harness is not installed: children, and Python workers of their Spark, find it here.
_PACKAGES = Path(__file__).resolve().parents[1]
_LOG_TAIL_LINES = 25
_GONE_WITHIN_S = 30.0
#: A child ends soon after its last event.
_EXIT_WITHIN_S = 60.0
#: If processes begin and end all the time, an approximate sum of their CPU time is enough.
_READINGS = 10


class ChildError(RuntimeError):
    """A child ended early, failed or fell silent; the message holds the end of its log."""


class SparkChild:
    """A child Python process with its JVM and Python workers, in one session.

    Use it as a context manager: leaving the block kills what still runs of the session.

    Parameters
    ----------
    command
        Arguments of the Python interpreter, for instance ``["-m", "package.module"]``. The
        specification (JSON) and the number of the file descriptor for events are appended.
    spec
        The task of the child; must be serialisable as JSON.
    log
        File for the output of the child and its JVM; appended to.
    """

    def __init__(self, command: list[str], *, spec: Mapping[str, Any], log: Path) -> None:
        self.log = log
        reader, writer = os.pipe()
        inherited = os.environ.get("PYTHONPATH")
        environment = os.environ | {
            "PYSPARK_PYTHON": sys.executable,
            "PYTHONPATH": f"{_PACKAGES}{os.pathsep}{inherited}" if inherited else str(_PACKAGES),
        }
        with log.open("ab") as output:
            self._process = subprocess.Popen(
                [sys.executable, *command, json.dumps(spec), str(writer)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=(writer,),
                start_new_session=True,
                env=environment,
            )
        os.close(writer)
        self._reader = reader
        #: Leader and id of the session; only processes that this child started are in it.
        self.session = self._process.pid

    def __enter__(self) -> SparkChild:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        os.close(self._reader)
        self.kill()

    def events(self, *, silence_s: float) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield (kind, fields) of events until the child reports ``done``; then await its end.

        `silence_s` is the longest time without any event, in seconds. Raises a ChildError if the
        child ends without ``done``, reports ``failed``, or is silent for too long.
        """
        for line in self._lines(silence_s):
            fields: dict[str, Any] = json.loads(line)
            kind: str = fields.pop("event")
            if kind == "failed":
                raise ChildError(self._with_log(f"the run failed: {fields['message']}"))
            yield kind, fields
            if kind == "done":
                self._process.wait(_EXIT_WITHIN_S)
                return
        code = self._process.wait(_EXIT_WITHIN_S)
        raise ChildError(self._with_log(f"the run ended early with exit status {code}"))

    def _lines(self, silence_s: float) -> Iterator[bytes]:
        pending = b""
        while True:
            readable, _, _ = select.select([self._reader], [], [], silence_s)
            if not readable:
                raise ChildError(self._with_log(f"the run reported nothing for {silence_s:.0f} s"))
            chunk = os.read(self._reader, 65536)
            if not chunk:
                return
            *lines, pending = (pending + chunk).split(b"\n")
            yield from lines

    def kill(self) -> None:
        """Kill driver, JVM and Python workers with SIGKILL and wait until all are gone.

        Raises a ChildError if a process of the session still runs after 30 s.
        """
        kill_session(self.session)
        self._process.wait()

    def _with_log(self, message: str) -> str:
        lines = self.log.read_text(errors="replace").splitlines()[-_LOG_TAIL_LINES:]
        return "\n".join([message, f"end of {self.log}:", *(f"    {line}" for line in lines)])


def follow(
    command: list[str],
    *,
    spec: Mapping[str, Any],
    log: Path,
    silence_s: float,
    on_event: Callable[[str, dict[str, Any]], None],
) -> dict[str, Any] | None:
    """Follow a child to its end, or kill it when it reports that it is ready.

    Parameters
    ----------
    command, spec, log
        The arguments of `SparkChild`; the folder of the log is created.
    silence_s
        Longest time without any event, in seconds.
    on_event
        Called with (kind, fields) of every event but ``in_batch``.

    Returns
    -------
    dict or None
        Fields of the event ``in_batch``, at which the child was killed; None if it ran to its end.

    Raises
    ------
    ChildError
        If the child fails or is silent for too long.
    """
    log.parent.mkdir(exist_ok=True)
    with SparkChild(command, spec=spec, log=log) as child:
        for kind, fields in child.events(silence_s=silence_s):
            if kind == "in_batch":
                child.kill()
                return fields
            on_event(kind, fields)
    return None


def kill_session(session: int) -> None:
    """Kill all processes of a session with SIGKILL; ChildError if one still runs after 30 s."""
    deadline = time.monotonic() + _GONE_WITHIN_S
    # Repeat: a process that is just being started is not in the first listing.
    while left := running_in_session(session):
        for process in left:
            with suppress(ProcessLookupError):
                os.kill(process, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise ChildError(f"processes {left} still run after SIGKILL")
        time.sleep(0.01)


def running_in_session(session: int) -> list[int]:
    """List the living processes of a session, named by its leader.

    It is not a process group: the daemon that starts PySpark's workers makes a group of its own.
    """
    return [pid for pid, fields in _stats_of_session(session) if fields[0] not in "ZX"]


def cpu_of_session(session: int) -> float:
    """Return the CPU seconds of a session's processes so far, ended children included."""
    return cpu_of(lambda: dict(_stats_of_session(session)))


def cpu_of(read: Callable[[], Mapping[int, Sequence[str]]]) -> float:
    """Return the CPU seconds of processes so far, ended children included.

    `read` returns `process_stats` of these processes, by their ids. It is called until the same
    processes are found twice: one that ends after its parent was read and before it was read itself
    is counted with neither.
    """
    found = read()
    for _ in range(_READINGS):
        before, found = found.keys(), read()
        if found.keys() == before:
            break
    # utime, stime, cutime and cstime are fields 14 to 17, the state is field 3.
    ticks = sum(int(tick) for fields in found.values() for tick in fields[11:15])
    return ticks / os.sysconf("SC_CLK_TCK")


def process_stats() -> Iterator[tuple[int, list[str]]]:
    """Yield the id of every process, and its fields of ``/proc/PID/stat`` from the state on."""
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            stat = (entry / "stat").read_text()
        except OSError:
            continue  # It has ended.
        # After the command name, which is in parentheses: state, parent, group, session.
        yield int(entry.name), stat.rpartition(")")[2].split()


def _stats_of_session(session: int) -> Iterator[tuple[int, list[str]]]:
    return ((pid, fields) for pid, fields in process_stats() if int(fields[3]) == session)


class Reporter:
    """The child's end of the pipe."""

    def __init__(self, descriptor: int) -> None:
        os.set_inheritable(descriptor, False)
        self._pipe = os.fdopen(descriptor, "w", buffering=1)

    def __enter__(self) -> Reporter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        """Report an exception that ends the run, without catching it. Closes the pipe."""
        if isinstance(error, Exception):
            self("failed", message=f"{type(error).__name__}: {error}".splitlines()[0])
        self._pipe.close()

    def __call__(self, event: str, **fields: Any) -> None:
        """Send one event; a line is written whole or not at all."""
        self._pipe.write(json.dumps({"event": event, **fields}) + "\n")

    def follow(self, running: StreamingQuery, *, poll_s: float) -> None:
        """Report batches until the query ends; poll faster than Spark forgets progress reports."""
        last: tuple[int, str] | None = None
        ended = False
        while not ended:
            # The last reports arrive before the query ends, so a last look follows. PySpark accepts
            # fractions of a second, unlike its type hint.
            ended = bool(running.awaitTermination(poll_s))
            for progress in _after(last, running.recentProgress):
                self("batch", **asdict(BatchFigures.from_progress(json.loads(progress.json))))
                last = (progress.batchId, progress.timestamp)


def _after(
    last: tuple[int, str] | None, progresses: Sequence[StreamingQueryProgress]
) -> Sequence[StreamingQueryProgress]:
    """Return the reports after this batch and time; all if it is missing."""
    for index, progress in enumerate(progresses):
        if (progress.batchId, progress.timestamp) == last:
            return progresses[index + 1 :]
    return progresses


def report_to_parent(run: Callable[[Spec, Reporter], None], spec_type: Callable[..., Spec]) -> None:
    """Be the child: read the specification and the descriptor from the command line, and run.

    `run` does the work and reports it, ``done`` last. `spec_type` makes the specification.
    """
    with Reporter(int(sys.argv[2])) as report:
        run(spec_type(**json.loads(sys.argv[1])), report)
