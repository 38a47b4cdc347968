"""Single batches of two queries that differ in one setting, in turns, while nothing fails."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.report import Result
from common.rounds import Metric, Run, WrongStateError
from common.targets import MEASURED, Target
from common.turns import run_turns
from regional.places import S3_REQUEST_MS, open_place

from harness.screen import RunLine, Screen

_CHILD = Path(__file__).with_name("child.py")

BATCH = Metric(name="batch_ms", title="batch time, ms")
COPIED = Metric(name="copied", title="bytes sent for each changed byte", decimals=2)
NOTES = (
    "Both queries run in one application and take turns batch by batch; in each pair the other one"
    " is first. A round\nis a pair. The batches of the warm-up are left out."
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """A setting, and how many batches of two queries are compared.

    Attributes
    ----------
    name, without
        The name of the suite, and of the query without what the setting does.
    setting, values
        The setting, and its values with and without.
    master, on_s3
        Spark's master, and True if checkpoints are on a server of S3's protocol.
    at_most
        Bound of the batch time, of the batch time without.
    pairs, warm_up
        Batches of each query that count, and batches before them.
    """

    folder: Path
    name: str
    without: str
    setting: str
    values: tuple[str, str]
    master: str
    on_s3: bool
    at_most: float
    partitions: int
    pairs: int
    warm_up: int
    rows: int
    driver_memory: str

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return f"{self.name}-{self.partitions}"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        disk = f"an S3 server with {S3_REQUEST_MS} ms a request" if self.on_s3 else "a local disk"
        return (
            f"groupBy(key).count(): {self.partitions} partitions, {self.rows:,} rows a batch, noop "
            f"sink, {self.master}, {disk}, driver's heap {self.driver_memory}\n"
            f"{self.pairs} pairs of batches with and without {self.setting}, behind {self.warm_up}"
        )

    def measure(self, screen: Screen) -> Result:
        """Run all pairs.

        Raises
        ------
        ChildError
            If the application fails.
        WrongStateError
            If a batch is not the one of its pair.
        """
        load = os.getloadavg()[0]
        runs: list[Run] = []
        pair: dict[str, Mapping[str, Any]] = {}

        def take(line: RunLine, kind: str, fields: Mapping[str, Any]) -> None:
            if kind == "done":
                return
            if fields["rows"] != self.rows:
                raise WrongStateError(f"{self.title}: expected {self.rows:,} rows, found {fields}")
            line.note(f"pair {fields['pair'] + 1} of {self.pairs}")
            pair[fields["name"]] = fields
            if fields["pair"] >= 0 and len(pair) == len(self.values):
                runs.extend(self._runs(pair, load))
            if len(pair) == len(self.values):
                pair.clear()

        folder = self.folder / self.title
        folder.mkdir()
        plan = {
            "partitions": self.partitions,
            "pairs": self.pairs,
            "warm_up": self.warm_up,
            "rows": self.rows,
            "driver_memory": self.driver_memory,
        }
        place = open_place("s3", folder / "s3") if self.on_s3 else nullcontext()
        with place as server:
            spec = {
                **plan,
                "folder": str(folder),
                "setting": self.setting,
                "values": dict(zip((MEASURED, self.without), self.values, strict=True)),
                "uri": server.uri if server else str(folder),
                "settings": {"spark.master": self.master, **(server.settings if server else {})},
            }
            log = self.folder / f"{self.title}.log"
            run_turns(screen, self.title, _CHILD, spec=spec, log=log, on_event=take)
        targets = [Target(metric=BATCH, at_most=self.at_most, to=self.without)]
        if self.on_s3:
            targets.append(Target(metric=COPIED, at_most=1.1))
        return Result(
            name=self.title,
            plan=plan,
            metrics=(BATCH, COPIED) if self.on_s3 else (BATCH,),
            targets=tuple(targets),
            runs=runs,
            notes=NOTES,
            bases=(self.without,),
        )

    def _runs(self, pair: Mapping[str, Mapping[str, Any]], load: float) -> Iterator[Run]:
        more = pair[MEASURED]["sent"] - pair[self.without]["sent"]
        for provider, fields in pair.items():
            values = {BATCH.name: [float(fields["ms"])]}
            if self.on_s3:
                copied = more / fields["stored"] if provider == MEASURED else 0.0
                values[COPIED.name] = [copied]
            yield Run(provider=provider, round_number=fields["pair"], load=load, values=values)


def plans_of_isolation(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield the plans with and without isolation of failures."""
    for partitions, pairs in ((20, 60), (200, 30)):
        yield _plan(
            folder,
            name="isolation",
            without="not isolated",
            setting="isolateFailures",
            values=("true", "false"),
            # A task needs a second attempt, or nothing is isolated.
            master="local[2,4]",
            on_s3=False,
            at_most=1.01,
            partitions=partitions,
            pairs=10 if options.quick else pairs,
            rows=20_000,
        )


def plans_of_bad_rows(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield the plan with and without a guard for bad rows."""
    yield _plan(
        folder,
        name="bad-rows",
        without="not guarded",
        setting="badRows",
        values=("dead-letter", "fail"),
        master="local[2,4]",
        on_s3=False,
        at_most=1.01,
        partitions=20,
        pairs=10 if options.quick else 60,
        rows=200_000,
    )


def plans_of_copies(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield the plan with and without copies of commits, on three executors."""
    yield _plan(
        folder,
        name="copies",
        without="no copies",
        setting="commitCopies",
        values=("1", "0"),
        master="local-cluster[3,1,1024]",
        on_s3=True,
        at_most=1.03,
        partitions=20,
        pairs=2 if options.quick else 20,
        # Bytes of the batch's rows, and not of the messages around them.
        rows=100_000,
    )


def _plan(folder: Path, *, setting: str, **values: Any) -> Plan:
    key = f"spark.sql.streaming.stateStore.holdfast.{setting}"
    return Plan(folder=folder, setting=key, warm_up=10, driver_memory="2g", **values)
