"""Random kills of executors in one run of a query on a server of S3's protocol: ``make soak``.

One of four executors is killed again and again, at a random time after all four have been there for
the commit of a batch. The query must never stop, and each batch has the rows that plain Python
computes.
"""

from __future__ import annotations

import argparse
import os
import random
import signal
import sys
import tempfile
import time
from pathlib import Path

from support.spark.fault_queries import QUERIES
from support.spark.fault_report_job import Disk
from support.spark.process_faults import ENDED, LARGER, Trial, wrong_rows

EXECUTORS = 4
#: Seconds from a commit to a kill, at most: about the time of a batch.
PAUSE_S = 3.0
PATIENCE_S = 3600.0


def soak(folder: Path, query: str, *, batches: int, kills: int, seed: int) -> tuple[int, float]:
    """Kill executors while the query takes in all input; returns the kills and the seconds."""
    rng = random.Random(seed)  # noqa: S311
    started, killed = time.monotonic(), 0
    with Disk.on_s3(folder) as disk:
        trial = Trial("holdfast", query, folder, disk)
        trial.feed(0, batches)
        checkpoint = disk.location(trial.world / "checkpoint")
        with trial.cluster(LARGER) as application:
            application.begin(query, trial.inputs, trial.world, checkpoint, patience_s=PATIENCE_S)
            seen = -1  # commits when all executors were there first
            while not application.has_answered() and killed < kills:
                commits = len([*(trial.world / "checkpoint" / "commits").glob("[0-9]*")])
                if len(application.executors()) < EXECUTORS:
                    seen = -1
                elif seen < 0:
                    seen = commits
                elif commits > seen:
                    time.sleep(rng.uniform(0, PAUSE_S))
                    os.kill(rng.choice(application.executors()), signal.SIGKILL)
                    killed, seen = killed + 1, -1
                time.sleep(0.05)
            said = application.answer(PATIENCE_S)
        assert said == ENDED, f"the query stopped after {killed} kills: {said}"
        wrong = wrong_rows(trial.world / "sink", query, batches, complete=True)
        assert not wrong, f"wrong rows: {wrong}"
    return killed, time.monotonic() - started


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--query", default="aggregation", choices=QUERIES)
    parser.add_argument("--batches", type=int, default=200)
    parser.add_argument("--kills", type=int, default=50)
    parser.add_argument("--seed", type=int, default=1)
    args = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="soak-", ignore_cleanup_errors=True) as folder:
        killed, seconds = soak(
            Path(folder), args.query, batches=args.batches, kills=args.kills, seed=args.seed
        )
    print(f"{args.query}: {args.batches} batches, {killed} executors killed, {seconds:.0f} s")
    if killed < args.kills:
        sys.exit(f"expected {args.kills} kills: give more --batches")


if __name__ == "__main__":
    main()
