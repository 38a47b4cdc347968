"""Regional work on two real executors: Python workers, their executors' managers, the driver.

Run as ``socket_job.py FOLDER``; writes its results to ``FOLDER/facts.json``.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from threading import Thread
from typing import Any

import pyarrow as pa
from py4j.protocol import Py4JJavaError
from pyspark.errors import IllegalArgumentException
from pyspark.sql import SparkSession

import holdfast
from holdfast import Owner, SegmentRef, SnapshotManager
from holdfast._core import ManagerClient, manager_message
from holdfast.regions.protocol.answers import messages_of
from support.spark.queries import builder

PIPELINE = "sales"
WAIT_SECONDS = 120
FOR_EVER_MS = 86_400_000

# Too large for a socket itself.
STATE_BYTES = 300_000

# The driver keeps this much for a pipeline, 64 MiB; another message has to wait.
LARGE_BYTES = 15 << 20
LARGE_MESSAGES = 4
SMALL_MESSAGES = 3


def owner(region: int) -> Owner:
    return Owner(PIPELINE, "stats", str(region))


def state(region: int) -> bytes:
    return str(region).encode() * STATE_BYTES


def region_of(batches: Iterator[pa.RecordBatch]) -> int:
    """The one row of a task names its region."""
    (row,) = pa.Table.from_batches(list(batches)).to_pylist()
    region: int = row["id"]
    return region


def executor() -> int:
    """Process of the executor that this worker belongs to: the parent of its daemon."""
    status = Path(f"/proc/{os.getppid()}/status").read_text()
    return int(status.split("PPid:")[1].split()[0])


def may_end(folder: str, worker: str) -> Path:
    """The file by which the driver lets a worker's task end."""
    return Path(folder).with_name(f"{worker}.ends")


def snapshots(folder: str, checkpoint: int) -> Callable[..., Iterator[pa.RecordBatch]]:
    """A task that writes a snapshot, acknowledges it, and ends when the driver lets it."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        region = region_of(batches)
        with ManagerClient.of_executor(pipeline=PIPELINE, folder=folder) as client:
            ref = client.append(owner(region), checkpoint, state(region))
            client.persist_segments(checkpoint, owner(region), [ref])
            # One for each attempt: Spark reuses workers.
            worker = uuid.uuid4().hex
            facts = {
                "region": region,
                "ref": ref.to_bytes().hex(),
                "socket": str(client.socket),
                "worker": worker,
                "pid": os.getpid(),
                "executor": executor(),
            }
            client.send(json.dumps(facts).encode())
            while not may_end(folder, worker).exists():
                time.sleep(0.02)
            read = client.read(ref, owner(region)) == state(region)
        yield pa.RecordBatch.from_pydict({"said": [str(read)]})

    return work


def speaks(folder: str) -> Callable[..., Iterator[pa.RecordBatch]]:
    """A task that reports the result of connecting."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        region_of(batches)
        try:
            ManagerClient.of_executor(pipeline=PIPELINE, folder=folder)
            said = "connected"
        except OSError as refused:
            said = f"{type(refused).__name__}: {refused}"
        yield pa.RecordBatch.from_pydict({"said": [said]})

    return work


def floods(folder: str) -> Callable[..., Iterator[pa.RecordBatch]]:
    """A task that sends more than the driver has room for, while the driver takes nothing."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        region_of(batches)
        with (
            ManagerClient.of_executor(pipeline=PIPELINE, folder=folder) as client,
            ManagerClient.of_executor(pipeline=PIPELINE, folder=folder) as other,
        ):
            for number in range(LARGE_MESSAGES):
                client.send(bytes([number]) * LARGE_BYTES)
            last = Thread(target=client.send, args=(bytes([LARGE_MESSAGES]) * LARGE_BYTES,))
            last.start()
            # It cannot end before the driver polls, and that waits for the marker.
            last.join(2)
            waits = last.is_alive()
            other.send(b"a small one fits")
            Path(folder, "../full").touch()
            last.join()
            for number in range(SMALL_MESSAGES):
                client.send(bytes([number]))
        yield pa.RecordBatch.from_pydict({"said": [str(waits)]})

    return work


def stages(folder: str) -> Callable[..., Iterator[pa.RecordBatch]]:
    """A task that lets its executor stage a file; two more are refused."""

    def work(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        region_of(batches)
        local, out = Path(folder, "../rows"), Path(folder, "../out")
        local.write_bytes(b"rows of a region")
        staged, target = f"file:{out}/staged/a", f"file:{out}/rows"
        said = []
        with ManagerClient.of_executor(pipeline=PIPELINE, folder=folder) as client:
            client.stage(str(local), staged, target)
            for path, name in ((f"{local}-none", f"{staged}-none"), (str(local), staged)):
                try:
                    client.stage(path, name, target)
                except OSError as refused:
                    said.append(type(refused).__name__)
        yield pa.RecordBatch.from_pydict({"said": said})

    return work


class Driver:
    def __init__(self, folder: Path) -> None:
        self.segments = str(folder / "segments")
        base = builder("local-cluster[2,1,1024]", folder / "warehouse")
        base = base.config("spark.locality.wait", "0s").config(
            "spark.ui.showConsoleProgress", "false"
        )
        self.spark: SparkSession = holdfast.configure(base).getOrCreate()
        self.spark.sparkContext.setLogLevel("ERROR")
        jvm: Any = self.spark._jvm
        self.bridge = jvm.io.holdfast.spark.driver.HoldfastDriver.running().regionalPipelines()
        self.pool = ThreadPoolExecutor(1)
        self.polled: deque[bytes] = deque()
        # One task per executor at a time, and both have come up.
        status = self.spark._jsc.sc().getExecutorMemoryStatus
        self.wait_until(lambda: status().size() == 3)

    def wait_until(self, happened: Callable[[], bool]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS
        while not happened():
            assert time.monotonic() < deadline, "it never happened"
            time.sleep(0.02)

    def start(self, work: Any, regions: int = 2) -> Future[list[str]]:
        frame = self.spark.range(0, regions, 1, regions).mapInArrow(work, "said string")
        return self.pool.submit(lambda: [row.said for row in frame.collect()])

    def next_message(self, timeout_ms: int) -> bytes | None:
        if not self.polled:
            self.polled.extend(messages_of(bytes(self.bridge.poll(PIPELINE, timeout_ms) or b"")))
        return self.polled.popleft() if self.polled else None

    def poll(self, job: Future[list[str]]) -> bytes:
        """The next message; the job that sends it is still running."""
        deadline = time.monotonic() + WAIT_SECONDS
        while time.monotonic() < deadline:
            # Asked first: the messages of the job before its end have arrived then.
            ended = job.done()
            if (data := self.next_message(1000)) is not None:
                return data
            assert not ended, job.result()
        raise AssertionError("no worker said anything")

    def acknowledged(self, job: Future[list[str]], count: int) -> list[dict[str, Any]]:
        facts = [json.loads(self.poll(job)) for _ in range(count)]
        assert not job.done()
        return facts

    def let_end(self, workers: list[dict[str, Any]]) -> None:
        for worker in workers:
            may_end(self.segments, worker["worker"]).touch()

    def tell(self, kind: Any, checkpoint: int, retained: dict[int, dict[Owner, int]]) -> int:
        message = manager_message(kind, checkpoint, {}, retained)
        told: int = self.bridge.tellManagers(self.segments, message)
        return told

    def terms(self) -> list[int]:
        return list(self.bridge.liveTerms(self.segments))

    def files(self) -> list[str]:
        folder = Path(self.segments)
        return sorted(path.name for path in folder.iterdir()) if folder.exists() else []

    def refused(self, call: Callable[[], object]) -> str:
        try:
            call()
        except (Py4JJavaError, IllegalArgumentException) as error:
            return str(error)
        return "nothing"


def killed_worker(driver: Driver) -> dict[str, Any]:
    """A checkpoint in which one worker is killed after it acknowledged, and tried again."""
    job = driver.start(snapshots(driver.segments, 1))
    first = driver.acknowledged(job, 2)
    victim = next(facts for facts in first if facts["region"] == 0)
    os.kill(victim["pid"], signal.SIGKILL)
    (again,) = driver.acknowledged(job, 1)
    driver.let_end([*first, again])
    results = job.result(WAIT_SECONDS)
    refs = [SegmentRef.from_bytes(bytes.fromhex(facts["ref"])) for facts in [*first, again]]
    with SnapshotManager(driver.segments) as reader:
        intact = [
            reader.read(ref, owner(facts["region"])) == state(facts["region"])
            for ref, facts in zip(refs, [*first, again], strict=True)
        ]
    return {
        "victim": victim,
        "again": again,
        "results": results,
        "sockets": sorted({facts["socket"] for facts in first}),
        "referenced_files": sorted({ref.file for ref in refs}),
        "files": driver.files(),
        "intact": intact,
        "terms": driver.terms(),
        "ref_terms": sorted({ref.term for ref in refs}),
    }


def life_of_files(driver: Driver) -> dict[str, Any]:
    """Messages of the driver keep the files, and then release them."""
    told, kept = driver.tell("completed", 1, {1: {}}), driver.files()
    told_again = driver.tell("completed", 2, {2: {}})
    # A thread of each manager deletes: the answer to the message does not wait for it.
    driver.wait_until(lambda: driver.files() == [])
    return {
        "told": told,
        "kept": kept,
        "told_again": told_again,
        "told_nonsense": driver.bridge.tellManagers(driver.segments, b"nonsense"),
        "told_elsewhere": driver.bridge.tellManagers(driver.segments + "-other", b""),
    }


def closed_and_opened_again(driver: Driver) -> dict[str, Any]:
    """A closed pipeline refuses its workers; opened again, ids of checkpoints may begin again."""
    job = driver.start(snapshots(driver.segments, 3), regions=1)
    facts = driver.acknowledged(job, 1)
    driver.let_end(facts)
    job.result(WAIT_SECONDS)
    bridge = driver.bridge
    found = {
        "open_twice": driver.refused(lambda: bridge.open(PIPELINE, driver.segments)),
        "folder_twice": driver.refused(lambda: bridge.open("other", f"file:{driver.segments}/")),
        "state_folder": driver.refused(lambda: bridge.open("other", "/ckpt/state/holdfast")),
    }
    # Otherwise it would wait for longer than the test waits for this job.
    bridge.wake(PIPELINE)
    found["woken"] = bridge.poll(PIPELINE, FOR_EVER_MS) is None
    ref = SegmentRef.from_bytes(bytes.fromhex(facts[0]["ref"]))
    file = Path(driver.segments, ref.file)
    found["open_bytes"] = file.stat().st_size
    bridge.close(PIPELINE)
    bridge.close(PIPELINE)
    bridge.wake(PIPELINE)
    found["sealed_bytes"] = file.stat().st_size
    with SnapshotManager(driver.segments) as reader:
        found["readable"] = reader.read(ref, owner(0)) == state(0)
    found |= {
        "terms_closed": driver.terms(),
        "poll_closed": driver.refused(lambda: bridge.poll(PIPELINE, 0)),
        "worker_closed": driver.start(speaks(driver.segments), regions=1).result(WAIT_SECONDS),
    }
    bridge.open(PIPELINE, driver.segments)
    found["worker_elsewhere"] = driver.start(speaks("/elsewhere"), regions=1).result(WAIT_SECONDS)
    job = driver.start(snapshots(driver.segments, 1))
    facts = driver.acknowledged(job, 2)
    driver.let_end(facts)
    found["results_again"] = job.result(WAIT_SECONDS)
    found["terms_again"] = driver.terms()
    return found


def flooded(driver: Driver) -> dict[str, Any]:
    """More messages than fit wait with their sender."""
    job = driver.start(floods(driver.segments), regions=1)
    driver.wait_until(lambda: Path(driver.segments, "../full").exists() or job.done())
    received = [driver.next_message(60_000) or b"" for _ in range(LARGE_MESSAGES + 2)]
    alone = not driver.polled
    waited = job.result(WAIT_SECONDS)
    together = messages_of(bytes(driver.bridge.poll(PIPELINE, 60_000)))
    return {
        "waited": waited,
        "lengths": [len(data) for data in received],
        "first_bytes": [data[0] for data in received],
        "alone": alone,
        "together": [data.hex() for data in together],
        "nothing": driver.bridge.poll(PIPELINE, 1),
    }


def staged(driver: Driver) -> dict[str, Any]:
    """The driver publishes the staged output of a task."""
    refused = driver.start(stages(driver.segments), regions=1).result(WAIT_SECONDS)
    out = Path(driver.segments, "../out")
    before = sorted(path.name for path in out.rglob("*"))
    jvm: Any = driver.spark._jvm
    conf = driver.spark._jsparkSession.sessionState().newHadoopConf()
    files = jvm.io.holdfast.spark.PipelineFiles(conf)
    rows = f"file:{out}/rows"
    files.publish([f"file:{out}/staged/a"], [rows], [16])
    return {
        "refused": refused,
        "before": before,
        "after": sorted(path.name for path in out.rglob("*")),
        "rows": bytes(files.read(rows)).decode(),
    }


def lost_executor(driver: Driver) -> dict[str, Any]:
    """The terms of a killed executor are no longer live."""
    job = driver.start(snapshots(driver.segments, 2))
    facts = driver.acknowledged(job, 2)
    before = driver.terms()
    os.kill(facts[0]["executor"], signal.SIGKILL)
    gone = SegmentRef.from_bytes(bytes.fromhex(facts[0]["ref"])).term
    driver.wait_until(lambda: gone not in driver.terms())
    (again,) = driver.acknowledged(job, 1)
    driver.let_end([*facts, again])
    return {
        "before": before,
        "gone": gone,
        "region": [facts[0]["region"], again["region"]],
        "results": job.result(WAIT_SECONDS),
    }


def main() -> None:
    folder = Path(sys.argv[1])
    driver = Driver(folder)
    driver.bridge.open(PIPELINE, driver.segments)
    parts = [killed_worker, life_of_files, closed_and_opened_again, flooded, staged, lost_executor]
    facts = {part.__name__: part(driver) for part in parts}
    (folder / "facts.json").write_text(json.dumps(facts))
    driver.spark.stop()


if __name__ == "__main__":
    main()
