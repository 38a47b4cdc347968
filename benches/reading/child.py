"""One step in a process of its own: ``child.py SPEC FD``."""

from __future__ import annotations

import os
import resource
import signal
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

# A script finds what is beside it; this is where the packages of the benchmarks are.
sys.path[0] = str(Path(__file__).resolve().parents[1])

from common.processes import Process  # noqa: E402
from common.rounds import WrongStateError  # noqa: E402

import holdfast  # noqa: E402
from harness.process import Reporter, report_to_parent  # noqa: E402

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa

_STATE = "spark.sql.streaming.stateStore."
#: Stores merge between the batches.
_MAINTENANCE = {f"{_STATE}maintenanceInterval": "1s", f"{_STATE}minDeltasForSnapshot": "1"}
#: Memory is a tenth of the state.
_MEMORY_BYTES_A_KEY = 6
_WARM_UP = 1_000
_MS = 1000
_MIB = 1 << 20


def make(spec: dict[str, Any], report: Reporter) -> None:
    """Run the query until its checkpoint has all keys."""
    import pyarrow.parquet as pq
    from pyspark.sql import functions as sf

    from harness.providers import start_session
    from reading import keys

    folder = Path(spec["folder"])
    source = folder / "in"
    source.mkdir()
    for number, table in enumerate(keys.files(spec["keys"])):
        file = source / f"{number:02}.parquet"
        pq.write_table(table, file)
        # The source takes files by age.
        os.utime(file, (number + 1, number + 1))
    spark = start_session(
        provider="holdfast",
        partitions=spec["partitions"],
        driver_memory=spec["driver_memory"],
        extra={
            **_MAINTENANCE,
            f"{_STATE}holdfast.targetMemoryBytes": str(_MEMORY_BYTES_A_KEY * spec["keys"]),
        },
    )
    spark.sparkContext.setLogLevel("ERROR")
    running = (
        spark.readStream.schema("key string, value long")
        .option("maxFilesPerTrigger", 1)
        .parquet(str(source))
        .groupBy("key")
        .agg(sf.count("*").alias("count"), sf.sum("value").alias("sum"))
        .writeStream.format("noop")
        .outputMode("update")
        .option("checkpointLocation", spec["checkpoint"])
        .trigger(availableNow=True)
        .start()
    )
    report.follow(running, poll_s=1)
    spark.stop()


def read(spec: dict[str, Any], report: Reporter) -> None:
    """Open the checkpoint, scan it, and get keys, first one by one, then in batches."""
    begun = time.perf_counter()
    state = holdfast.open_state(spec["checkpoint"])
    _has_columns(state)
    report("figures", open_s=time.perf_counter() - begun)

    import numpy as np
    import pyarrow.compute as pc

    from reading import keys

    # Scans come first: memory that gets leave behind would hide what they take.
    process = Process(os.getpid())
    before_bytes, before_s = process.resident_bytes(), time.process_time()
    rows = counts = sums = 0
    for batch in state.scan():
        rows += len(batch)
        counts += pc.sum(batch["count"]).as_py()
        sums += pc.sum(batch["sum"]).as_py()
    spent_s, more_bytes = time.process_time() - before_s, process.peak_bytes() - before_bytes
    numbers = keys.numbers(spec["keys"])
    right = [int(one.sum()) for one in keys.expected(numbers, spec["keys"])]
    if (found := [rows, counts, sums]) != [spec["keys"], *right]:
        raise WrongStateError(f"scan: expected {[spec['keys'], *right]}, found {found}")
    report(
        "figures",
        scan_us=spent_s / rows * 1e6,
        scan_rows=rows / spent_s,
        scan_mib=more_bytes / _MIB,
    )

    chosen = np.random.default_rng(spec["seed"])
    single: list[tuple[float, int]] = []
    for number in chosen.choice(numbers, _WARM_UP + spec["gets"]):
        asked = np.array([number])
        one = {"key": keys.texts(asked)}
        switches, begun = _preemptions(), time.perf_counter()
        table = state.get(one)
        single.append((time.perf_counter() - begun, _preemptions() - switches))
        _check(table, asked, spec["keys"])
    spent_ms, preempted = np.array(single[_WARM_UP:]).T * [[_MS], [1]]
    p50, p99 = np.percentile(spent_ms, [50, 99])
    report(
        "figures",
        p50_ms=p50,
        p99_ms=p99,
        p99_alone_ms=np.percentile(spent_ms[preempted == 0], 99),
        preempted_percent=(preempted > 0).mean() * 100,
    )

    spent_s = 0.0
    for _ in range(spec["batches"]):
        asked = chosen.choice(numbers, spec["batch_keys"])
        many = {"key": keys.texts(asked)}
        before_s = time.process_time()
        table = state.get(many)
        spent_s += time.process_time() - before_s
        _check(table, asked, spec["keys"])
    asked_keys = spec["batches"] * spec["batch_keys"]
    report("figures", batch_us=spent_s / asked_keys * 1e6, batch_keys=asked_keys / spent_s)


def remote(spec: dict[str, Any], report: Reporter) -> None:
    """Open the checkpoint on S3, and get one key; again when all stores are open."""
    # Threads that begin later block it, too, so it stays until it is waited for.
    signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR1})
    begun = time.perf_counter()
    state = holdfast.open_state(spec["uri"])
    _has_columns(state)
    report("figures", open_s3_s=time.perf_counter() - begun)

    import numpy as np

    from reading import keys

    chosen = np.random.default_rng(spec["seed"]).permutation(keys.numbers(spec["keys"]))
    for figure, asked in ("cold_s", chosen[:1]), ("next_s", chosen[1:2]):
        one = {"key": keys.texts(asked)}
        _wait_for_count(report)
        begun = time.perf_counter()
        table = state.get(one)
        report("figures", **{figure: time.perf_counter() - begun})
        _wait_for_count(report)
        _check(table, asked, spec["keys"])
        # Some key of every partition, so that all stores are open.
        state.get({"key": keys.texts(chosen[-100:])})


def _wait_for_count(report: Reporter) -> None:
    """Wait until the parent has counted the requests so far."""
    report("count", process=os.getpid())
    signal.sigwait({signal.SIGUSR1})


def branch(spec: dict[str, Any], report: Reporter) -> None:
    """Make a branch of the checkpoint."""
    begun = time.perf_counter()
    holdfast.branch(spec["checkpoint"], spec["branch"])
    report("figures", branch_s=time.perf_counter() - begun)
    import numpy as np

    from reading import keys

    asked = np.random.default_rng(spec["seed"]).choice(keys.numbers(spec["keys"]), _WARM_UP)
    with holdfast.open_state(spec["branch"]) as state:
        _check(state.get({"key": keys.texts(asked)}), asked, spec["keys"])


def _preemptions() -> int:
    """Return how often another process took this thread's core so far."""
    return resource.getrusage(resource.RUSAGE_THREAD).ru_nivcsw


def _has_columns(state: holdfast.OpenedState) -> None:
    if state.schema.names != ["key", "count", "sum"]:
        raise WrongStateError(f"expected key, count and sum, found {state.schema.names}")


def _check(table: pa.Table, asked: np.ndarray, all_keys: int) -> None:
    from reading import keys

    for name, right in zip(("count", "sum"), keys.expected(asked, all_keys), strict=True):
        if (table[name].to_numpy() != right).any():
            raise WrongStateError(f"get: {name} is not that of the rows")


def run(spec: dict[str, Any], report: Reporter) -> None:
    """Run the step."""
    {"make": make, "read": read, "remote": remote, "branch": branch}[spec["step"]](spec, report)
    report("done")


if __name__ == "__main__":
    report_to_parent(run, dict)
