"""Every provider with dying, paused or concurrent processes, and full or forgetful disks.

A query runs some batches. From copies of its checkpoint and sink it runs two more, with a fault.
Then it continues with one more batch, and the rows of all batches in the sink are compared.
``--kills`` has the kills of drivers, ``--s3`` faults of drivers on a server of S3's protocol, and
``--executors`` those of executors there.
"""

from __future__ import annotations

import argparse
import json
import os
import queue
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

from harness.process import kill_session
from support import environment, preloadable, program
from support.spark import processes
from support.spark.fault_queries import QUERIES, feed
from support.spark.fault_report_job import REPORTED, Disk
from support.spark.process_fault_job import ANSWER
from support.spark.queries import canonical
from support.spark.watched_s3 import HAS_WRITTEN, READS, WRITES, WatchedS3

HERE = Path(__file__).parent
#: Inputs before the fault, with it, and in all.
BEFORE, WITH, ALL = 5, 7, 8
CLUSTER, LARGER = "local-cluster[2,1,1024]", "local-cluster[4,1,1024]"
#: Changes that a disk takes before it is full.
ROOM = range(0, 160, 20)
#: Folders of a checkpoint, and their changes in the two batches that have a kill before them.
KILLS = {"sources": (2,), "offsets": (2,), "state": (1, 4, 8, 12), "commits": (2,)}
#: Changes of state before an executor dies.
COMMITS = (1, 2, 3, 5)
#: The action of a sink that has the rows of a batch: all tasks have committed.
COMMITTED: Final = "committed"
#: Actions on an executor, on a server of S3's protocol.
MOMENTS = {
    READS: "it reads its state in a task",
    COMMITTED: "its tasks have committed",
    WRITES: "it writes its state",
    HAS_WRITTEN: "it has written its state",
}
#: Part of the path of the change before which a driver pauses, and the numbers of these changes.
PAUSES = {
    "it plans a batch": ("/offsets/5", 1),
    "the first write of state": ("/state/", 1),
    "a later write of state": ("/state/", 4),
    "it commits the batch": ("/commits/5", 1),
}
AT_ONCE: Final = 2
FULL: Final = "the disk is full"
WAIT_S = 240
#: Seconds after which a query that neither ends nor fails is abandoned.
PATIENCE_S = 100

#: Power cuts: the part of a checkpoint, and True if names are lost, too.
POWER_CUTS = {
    "power cut: contents": ("", False),
    "power cut: contents and names": ("", True),
    "power cut: contents of state": ("state", False),
    "power cut: contents and names of state": ("state", True),
}

#: The last word of an application: "ended", "error" or "hangs", and why.
Said = tuple[str, str]
ENDED: Final = ("ended", "")


class Signals(NamedTuple):
    """A signal, and the number of executors that get it."""

    executors: int
    number: int = signal.SIGKILL


NO_SIGNALS: Final = Signals(0)


class Application:
    """A Spark application that runs queries in order, see ``process_fault_job.py``."""

    def __init__(
        self, provider: str, folder: Path, *arguments: str, more: Mapping[str, str] | None = None
    ) -> None:
        folder.mkdir(parents=True)
        self._log = (folder / "log").open("w")
        job = [sys.executable, program("spark/process_fault_job.py"), provider, str(folder)]
        self._process = subprocess.Popen(
            [*job, *arguments],
            cwd=folder,
            env=environment(more),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._log,
            text=True,
            start_new_session=True,
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        threading.Thread(target=self._read, daemon=True).start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        kill_session(self._process.pid)
        self._process.wait()
        self._log.close()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if line.startswith(ANSWER):
                self._lines.put(line.removeprefix(ANSWER))
        self._lines.put(None)

    def begin(
        self,
        query: str,
        inputs: Path,
        world: Path,
        checkpoint: str,
        *,
        told: Signals = NO_SIGNALS,
        patience_s: float = PATIENCE_S,
    ) -> None:
        """Let a query take in all input; its sink sends signals in the first batch."""
        assert self._process.stdin is not None
        order = {
            "query": query,
            "inputs": str(inputs),
            "world": str(world),
            "checkpoint": checkpoint,
            "executors": told.executors,
            "signal": told.number,
            "patience_s": patience_s,
        }
        print(json.dumps(order), file=self._process.stdin, flush=True)

    def has_answered(self) -> bool:
        return not self._lines.empty()

    def executors(self) -> list[int]:
        """Its executors that are processes of their own."""
        return processes.executors(self._process.pid)

    def answer(self, patience_s: float = PATIENCE_S) -> Said:
        """Wait until the query is done."""
        line = self._lines.get(timeout=patience_s + WAIT_S)
        if line is None:
            raise RuntimeError(f"the application ended: see {self._log.name}")
        outcome, why = json.loads(line)
        return outcome, why


@dataclass(frozen=True)
class Control:
    """The orders to ``watched_changes.c``, and the folder of its notes."""

    folder: Path
    libraries: str

    @classmethod
    def made(cls, folder: Path) -> Self:
        (folder / "images").mkdir(parents=True)
        sources = [HERE / "watched_changes.c", HERE / "noted_calls.c"]
        return cls(folder, " ".join(str(preloadable(source, folder)) for source in sources))

    def environment(self) -> dict[str, str]:
        return {"WATCHED_CHANGES": str(self.folder), "NOTED_CALLS": str(self.folder / "noted.txt")}

    def order(self, action: str, nth: int, part: str, folder: Path) -> None:
        staged = self.folder / "staged"
        staged.write_text(f"{action} {nth} {part} {folder}\n")
        staged.rename(self.folder / "order")

    def is_waiting(self) -> bool:
        """True while no process has taken the order."""
        return (self.folder / "order").exists()

    def end(self) -> bool:
        """Take the order back; returns True if no process took it."""
        waiting = self.is_waiting()
        (self.folder / "order").unlink(missing_ok=True)
        return waiting

    def reached(self) -> int | None:
        """Return the process that stopped or found a disk full, once."""
        reached = self.folder / "reached"
        text = reached.read_text() if reached.exists() else ""
        if not text.endswith("\n"):
            return None
        reached.unlink()
        return int(text)


@dataclass
class Tried:
    """A fault, and its effect."""

    kind: str
    fault: str
    world: Path
    #: The last answers of the applications with the fault.
    said: list[Said] = field(default_factory=list)
    #: The exact place.
    place: str = ""

    def found(self, query: str, last: Said, inputs: int) -> dict[str, Any]:
        """Return the line of the report, after the query was started again."""
        ended = last[0] == "ended"
        why = wrong_rows(self.world / "sink", query, inputs, complete=ended)
        failed = [why for outcome, why in self.said if outcome != "ended"]
        if why:
            outcome = "wrong"
        elif not ended:
            outcome, why = last
        elif failed:
            alone = len(failed) == len(self.said)
            outcome, why = ("restart" if alone else "refused"), failed[0]
        else:
            outcome = "right"
        line = {"query": query, "kind": self.kind, "fault": self.fault, "file": self.place}
        noticed = [*failed, *([last[1]] if last[0] == "error" else [])]
        return {**line, "outcome": outcome, "why": why, "noticed": bool(noticed)}


def wrong_rows(sink: Path, query: str, inputs: int, *, complete: bool) -> str:
    """Return the errors in the rows of a sink, if any.

    A batch has one input of a source, or several, or none. If the query is not ``complete``, inputs
    may be missing.
    """
    *_, sources, expected = QUERIES[query]
    others = sorted(path.stem for path in sink.glob("*.other"))
    if others:
        return f"batch {others[0]} had other rows when it was repeated"
    taken = (0,) * sources
    numbers = sorted(int(path.stem) for path in sink.glob("*.json"))
    for place, number in enumerate(numbers):
        rows = canonical([tuple(row) for row in json.loads((sink / f"{number}.json").read_text())])
        if number != place:
            return f"no batch {place}"
        for after in product(*(range(one, inputs + 1) for one in taken)):
            if after != taken and rows == canonical(expected(taken, after)):
                break
        else:
            return f"batch {number}"
        taken = after
    return f"input {min(taken)} is in no batch" if complete and min(taken) < inputs else ""


def power_cut(
    world: Path, original: Path, before: Path, noted: Path, *, part: str = "", names: bool
) -> None:
    """Leave in a copy of a world the content of its disk after a power cut.

    Parameters
    ----------
    world
        The copy, which changes.
    original
        The folder that it is a copy of.
    before
        The same folder some time ago, all of which is on the disk.
    noted
        Notes of ``noted_calls.c`` since then.
    part
        The folder of the checkpoint that loses content; by default all of it.
    names
        True if names are lost whose folder was not synced, in addition to contents of files.
    """
    synced: dict[Path, int] = {}
    pending: dict[Path, set[Path]] = {}
    durable: set[Path] = set()
    for line in noted.read_text().splitlines() if noted.exists() else ():
        what, size, name, *others = line.split(" ")
        path = Path(name)
        if what == "sync":
            synced[path] = int(size)
            durable |= pending.pop(path, set())
        elif what == "has":
            pending.setdefault(path.parent, set()).add(path)
        elif what == "name":
            synced[path] = synced.get(Path(others[0]), 0)
    durable |= {original / path.relative_to(before) for path in before.rglob("*")}
    for path in [path for path in (world / "checkpoint" / part).rglob("*") if path.is_file()]:
        inner = path.relative_to(world)
        old, at = before / inner, original / inner
        if old.exists() and old.read_bytes() == path.read_bytes():
            continue
        above = [at, *(folder for folder in at.parents if original in folder.parents)]
        if names and not durable.issuperset(above):
            path.unlink()
            continue
        kept = max(synced.get(at, 0), old.stat().st_size if old.exists() else 0)
        os.truncate(path, min(kept, path.stat().st_size))


class Trial:
    """A query on one provider, with faults: copies of its world, and applications."""

    def __init__(self, provider: str, query: str, folder: Path, disk: Disk) -> None:
        self.provider = provider
        self.query = query
        self.folder = folder
        self.disk = disk
        self.inputs = folder / "inputs"
        #: Before the fault.
        self.world = disk.folder / "world"
        self.world.mkdir(parents=True)
        self.control: Control | WatchedS3
        if disk.server:
            self.control = WatchedS3(disk.folder.parent)
            disk.server.before, disk.server.after = self.control.before, self.control.after
        else:
            self.control = Control.made(folder / "control")
        self.copies = 0

    def copy(self, world: Path) -> Path:
        """Return a copy of a world, under a path that no state store has seen."""
        self.copies += 1
        copy = self.disk.folder / "copies" / str(self.copies)
        # Maintenance may still write files under other names.
        staged = shutil.ignore_patterns("*.tmp", "*.tmp.crc")
        shutil.copytree(world, copy, symlinks=True, ignore=staged)
        return copy

    def feed(self, first: int, end: int) -> None:
        for batch in range(first, end):
            feed(self.inputs, batch)

    def begin(self, application: Application, world: Path, told: Signals = NO_SIGNALS) -> None:
        checkpoint = self.disk.location(world / "checkpoint")
        application.begin(self.query, self.inputs, world, checkpoint, told=told)

    def run(self, application: Application, world: Path, told: Signals = NO_SIGNALS) -> Said:
        """Let the query take in all input; its sink sends signals to executors."""
        self.begin(application, world, told)
        return application.answer()

    def application(self, name: str, *arguments: str, watched: bool = False) -> Application:
        """Start an application; on a local disk it may be ``watched``, on S3 all are."""
        words = [*arguments, *(f"--set={setting}" for setting in self.disk.settings)]
        more = dict(self.disk.environment)
        if watched and isinstance(self.control, Control):
            words += ["--preload", self.control.libraries]
            more |= self.control.environment()
        return Application(self.provider, self.folder / name, *words, more=more)

    def results(
        self, faults: Callable[[Trial, Application, Application], Iterator[Tried]]
    ) -> Iterator[dict[str, Any]]:
        """Try faults on two applications, of which the first one is watched."""
        with self.application("a", watched=True) as watched, self.application("b") as other:
            self.feed(0, BEFORE)
            said = self.run(other, self.world)
            assert said == ENDED, said
            self.feed(BEFORE, WITH)
            tried = list(faults(self, watched, other))
            self.feed(WITH, ALL)
            for one in tried:
                # A disk has space again, and the same application continues.
                again = watched if one.kind == FULL else other
                yield one.found(self.query, self.run(again, one.world), ALL)

    def killed(self) -> Iterator[Tried]:
        """Drivers that are killed before a change of a file."""
        for place, numbers in KILLS.items():
            for nth in numbers:
                copy = self.copy(self.world)
                with self.application(f"killed-{self.copies}", watched=True) as driver:
                    self.control.order("kill", nth, f"/checkpoint/{place}/", copy)
                    self.begin(driver, copy)
                    while self.control.is_waiting() and not driver.has_answered():
                        time.sleep(0.02)
                    died = not self.control.end()
                if not died:
                    break  # There are not so many.
                fault, where = f"before a write of {place}", f"before change {nth} of {place}"
                yield Tried("the driver is killed", fault, copy, place=where)

    def power_cuts(self, watched: Application) -> Iterator[Tried]:
        """Power cuts at some moments of the last batch."""
        assert isinstance(self.control, Control)
        (self.control.folder / "noted.txt").unlink(missing_ok=True)
        original, images = self.copy(self.world), self.control.folder / "images"
        self.control.order("image", 0, "/checkpoint/", original)
        said = self.run(watched, original)
        self.control.end()
        assert said == ENDED, said
        moments: dict[str, Path] = {}
        for image in sorted(images.iterdir(), key=lambda path: int(path.name)):
            changed = Path((image / "before").read_text().rstrip())
            change = changed.relative_to(original).as_posix()
            if change == f"checkpoint/offsets/{WITH - 1}":
                moments["between two batches"] = image
            if change == f"checkpoint/commits/{WITH - 1}":
                moments["before a batch is committed"] = image
        last = images / "last"
        shutil.copytree(original, last / original.name, symlinks=True)
        shutil.copy(self.control.folder / "noted.txt", last)
        moments["the query has ended"] = last
        for moment, image in moments.items():
            for kind, (part, names) in POWER_CUTS.items():
                copy, noted = self.copy(image / original.name), image / "noted.txt"
                power_cut(copy, original, self.world, noted, part=part, names=names)
                yield Tried(kind, moment, copy)

    def full(self, watched: Application) -> Iterator[Tried]:
        """Disks that are full after a number of changes, until one is not."""
        for room in ROOM:
            copy = self.copy(self.world)
            self.control.order("full", room, "/checkpoint/", copy)
            said = self.run(watched, copy)
            self.control.end()
            if self.control.reached() is None:
                return
            yield Tried(FULL, "", copy, [said], f"after {room} changes")

    def paused(self, watched: Application, other: Application) -> Iterator[Tried]:
        """A driver that pauses, and continues after another application did."""
        for fault, (part, nth) in PAUSES.items():
            copy = self.copy(self.world)
            # There are few objects.
            nth = min(nth, 2) if self.disk.server else nth
            self.control.order("stop", nth, part, copy)
            self.begin(watched, copy)
            deadline = time.monotonic() + WAIT_S
            while (process := self.control.reached()) is None:
                assert not watched.has_answered(), f"no driver paused before {fault}"
                assert time.monotonic() < deadline, "neither stopped nor ended"
                time.sleep(0.02)
            said = [self.run(other, copy)]
            os.kill(process, signal.SIGCONT)
            said.append(watched.answer())
            yield Tried("a driver pauses", f"before {fault}", self.copy(copy), said)

    def at_once(self, watched: Application, other: Application) -> Iterator[Tried]:
        """Two drivers that begin at the same time."""
        for _ in range(AT_ONCE):
            copy = self.copy(self.world)
            for one in (watched, other):
                self.begin(one, copy)
            said = [one.answer() for one in (watched, other)]
            yield Tried("two drivers at once", "", self.copy(copy), said)

    def executors_killed(self) -> Iterator[Tried]:
        """An executor that dies while tasks commit their state to a local disk."""
        assert isinstance(self.control, Control)
        settings = {"LD_PRELOAD": self.control.libraries, **self.control.environment()}
        words = [f"--set=spark.executorEnv.{key}={value}" for key, value in settings.items()]
        with self.cluster(CLUSTER, *words) as executors:
            for nth in COMMITS:
                copy = self.copy(self.world)
                self.control.order("kill", nth, "/state/", copy)
                said = self.run(executors, copy)
                if self.control.end():
                    return  # No executor writes so often.
                place = f"before write {nth} of state"
                yield Tried("an executor is killed", "", self.copy(copy), [said], place)

    def executors_killed_on_s3(self, moments: Iterable[str] = MOMENTS) -> Iterator[Tried]:
        """An executor that dies at some moments, on a server of S3's protocol."""
        with self.cluster(CLUSTER) as executors:
            for action in moments:
                copy = self.copy(self.world)
                if action == COMMITTED:
                    said = self.run(executors, copy, Signals(1))
                else:
                    self.control.order(action, 1, "/state/", copy)
                    said = self.run(executors, copy)
                    assert not self.control.end(), f"no executor {action}"
                yield Tried("an executor is killed", MOMENTS[action], self.copy(copy), [said])

    def two_executors_killed(self) -> Iterator[Tried]:
        """Two of four executors that die at once, when all tasks of a batch have committed."""
        with self.cluster(LARGER) as executors:
            copy = self.copy(self.world)
            said = self.run(executors, copy, Signals(2))
            yield Tried("two of four executors are killed", "", self.copy(copy), [said])

    def executor_decommissioned(self) -> Iterator[Tried]:
        """An executor that is told to go when all tasks of a batch have committed."""
        enabled = [f"--set=spark.{part}decommission.enabled=true" for part in ("", "storage.")]
        with self.cluster(CLUSTER, *enabled) as executors:
            copy = self.copy(self.world)
            said = self.run(executors, copy, Signals(1, signal.SIGPWR))
            yield Tried("an executor is decommissioned", "", self.copy(copy), [said])

    def cluster(self, master: str, *words: str) -> Application:
        # Otherwise tasks ask a dead executor for its part of a shuffle for 15 s.
        settings = ["spark.executor.memory=1g", "spark.shuffle.io.retryWait=200ms"]
        more = [f"--set={setting}" for setting in settings]
        return self.application(f"c{self.copies}", "--master", master, *more, *words)


def kills(trial: Trial, watched: Application, other: Application) -> Iterator[Tried]:
    """Kills of drivers."""
    yield from trial.killed()


def on_local_disk(trial: Trial, watched: Application, other: Application) -> Iterator[Tried]:
    """All other faults on a local disk."""
    yield from trial.power_cuts(watched)
    yield from trial.paused(watched, other)
    yield from trial.at_once(watched, other)
    yield from trial.executors_killed()
    yield from trial.full(watched)


def on_s3(trial: Trial, watched: Application, other: Application) -> Iterator[Tried]:
    """Faults of drivers."""
    yield from trial.killed()
    yield from trial.paused(watched, other)
    yield from trial.at_once(watched, other)


def of_executors(trial: Trial, watched: Application, other: Application) -> Iterator[Tried]:
    """Faults of executors on a server of S3's protocol."""
    yield from trial.executors_killed_on_s3()
    yield from trial.two_executors_killed()
    yield from trial.executor_decommissioned()


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("provider", choices=REPORTED)
    parser.add_argument("folder", type=Path)
    parser.add_argument("results", type=Path)
    parser.add_argument("--query", required=True, choices=QUERIES)
    which = parser.add_mutually_exclusive_group()
    which.add_argument("--kills", action="store_true", help="only kills of drivers")
    which.add_argument("--s3", action="store_true", help="of drivers on a server of S3's protocol")
    which.add_argument("--executors", action="store_true", help="of executors on such a server")
    args = parser.parse_args()
    faults = on_s3 if args.s3 else of_executors if args.executors else on_local_disk
    faults = kills if args.kills else faults
    args.folder.mkdir()
    remote = args.s3 or args.executors
    on_disk = Disk.on_s3(args.folder) if remote else nullcontext(Disk.local(args.folder))
    with on_disk as disk, args.results.open("w") as out:
        for line in Trial(args.provider, args.query, args.folder, disk).results(faults):
            print(json.dumps({"provider": args.provider, **line}), file=out, flush=True)


if __name__ == "__main__":
    main()
