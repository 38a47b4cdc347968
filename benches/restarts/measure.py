"""Restarts from checkpoints on HDFS and S3: requests, and time until the first batch is over."""

from __future__ import annotations

import argparse
import os
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.recording import flight_recording
from common.report import Result
from common.rounds import Metric, Run, in_rounds
from common.targets import MEASURED
from regional.places import Place, open_place

from harness.process import follow
from harness.providers import TITLES
from harness.screen import Screen

_SILENCE_S = 600.0

START = Metric(name="start_s", title="start of the query, s", decimals=1)
FIRST = Metric(
    name="first_s", title="start of the query to the end of its first batch, s", decimals=1
)
LOADS = Metric(name="loads_s", title="loads of stores in that batch, summed, s", decimals=1)
REQUESTS = Metric(name="requests", title="requests of the process in all")
READS = Metric(name="reads", title="of these, reads and looks at what is there")

METRICS = (START, FIRST, LOADS, REQUESTS, READS)

#: Kinds of requests that read, or look for a file: of S3, and of the name node, which has no part
#: in the reads themselves.
_READING = frozenset(
    {"GetObject", "HeadObject", "ListObjectsV2", "GetBlockLocations", "GetFileInfo", "GetListing"}
)

NOTES = (
    "Each restart is a process of its own, whose JVM has loaded no class of the query yet. It goes "
    "on with one batch from\nthe checkpoint of the process before it. Its requests are counted "
    "from its begin to its end, those of Spark's own\nlogs among them. What an aggregation puts "
    "out is checked."
)


@dataclass(frozen=True, kw_only=True)
class Case:
    """The query that restarts, and the place of its checkpoint: ``hdfs`` or ``s3``.

    Attributes
    ----------
    kind
        ``aggregation``, which compares providers, or ``pipeline``, a regional one.
    size
        Partitions, or regions.
    """

    name: str
    title: str
    kind: str
    place: str
    size: int


_S3 = "a server of the S3 protocol with 30 ms a request"
_HDFS = "an HDFS of one data node in another JVM"

CASES = (
    Case(
        name="aggregation-s3",
        title=f"groupBy().count() on 200 partitions, {_S3}",
        kind="aggregation",
        place="s3",
        size=200,
    ),
    Case(
        name="aggregation-hdfs",
        title=f"groupBy().count() on 200 partitions, {_HDFS}",
        kind="aggregation",
        place="hdfs",
        size=200,
    ),
    Case(
        name="pipeline-s3",
        title=f"regional pipeline of 1,000 regions, {_S3}",
        kind="pipeline",
        place="s3",
        size=1_000,
    ),
    Case(
        name="pipeline-hdfs",
        title=f"regional pipeline of 1,000 regions, {_HDFS}",
        kind="pipeline",
        place="hdfs",
        size=1_000,
    ),
)


@dataclass(frozen=True, kw_only=True)
class Plan:
    """How a case is measured.

    Attributes
    ----------
    before
        Batches of the process that makes the checkpoint.
    rows
        Rows of a batch: as many keys, or rows of each region.
    """

    case: Case
    folder: Path
    providers: tuple[str, ...]
    rounds: int
    driver_memory: str
    jfr: Path | None
    before: int
    rows: int

    @property
    def title(self) -> str:
        """Return the heading of what is measured."""
        return f"restarts, {self.case.name}"

    def describe(self) -> str:
        """Say in a few lines what is measured and how."""
        of_each = "keys a batch" if self.case.kind == "aggregation" else "rows a region and batch"
        return (
            f"{self.case.title}\n{self.rows:,} {of_each}; a process runs {self.before} batches, "
            f"another goes on from its checkpoint; {self.rounds} rounds"
        )

    def to_json(self) -> dict[str, Any]:
        """Return what the result file says about how it was measured."""
        return {
            "kind": self.case.kind,
            "place": self.case.place,
            "size": self.case.size,
            "rows": self.rows,
            "before": self.before,
            "rounds": self.rounds,
            "driver_memory": self.driver_memory,
        }

    def measure(self, screen: Screen) -> Result:
        """Run all rounds of a case.

        Raises
        ------
        ChildError
            If a query fails, puts out other rows than it has to, or a checkpoint is not global.
        """
        folder = self.folder / f"restarts-{self.case.name}"
        folder.mkdir()
        kinds: list[Mapping[str, Any]] = []
        with open_place(self.case.place, folder / self.case.place) as place, screen.runs():

            def run(provider: str, number: int) -> Run:
                return self._run(screen, place, folder, provider, number, kinds)

            runs = list(in_rounds(self.providers, self.rounds, run))
        return Result(
            name=f"restarts-{self.case.name}",
            plan=self.to_json() | {"kinds": kinds},
            metrics=METRICS,
            targets=(),
            runs=runs,
            notes=NOTES,
        )

    def _run(
        self,
        screen: Screen,
        place: Place,
        folder: Path,
        provider: str,
        number: int,
        kinds: list[Mapping[str, Any]],
    ) -> Run:
        name = f"{provider}-{number}"
        (folder / name / "in").mkdir(parents=True)
        load = os.getloadavg()[0]
        line = screen.run(f"{self.case.name} on {TITLES[provider]}, round {number + 1}", rows=None)
        measured: dict[str, Any] = {}

        def live(life: str, first: int, batches: int) -> Counter[str]:
            spec = {
                **self.to_json(),
                "provider": provider,
                "uri": f"{place.uri}/{name}",
                "folder": str(folder / name),
                "settings": {**place.settings, **flight_recording(self.jfr, f"{name}-{life}")},
                "first": first,
                "batches": batches,
            }

            def on_event(kind: str, fields: Mapping[str, Any]) -> None:
                if kind == "batch":
                    line.note(f"{life}: batch {fields['number']}")
                    measured.update(fields)

            before = place.requests()
            follow(
                [str(Path(__file__).with_name("child.py"))],
                spec=spec,
                log=folder / f"{name}.log",
                silence_s=_SILENCE_S,
                on_event=on_event,
            )
            counts = place.requests()
            counts.subtract(before)
            return +counts

        live("before", 0, self.before)
        counts = live("restarted", self.before, 1)
        line.finish(f"{measured['first_s']:.1f} s, {counts.total():,} requests")
        kinds.append({"provider": provider, "round": number, "requests": counts})
        values = {
            REQUESTS.name: [counts.total()],
            READS.name: [sum(counts[kind] for kind in _READING)],
        }
        for metric in (START, FIRST, LOADS):
            if measured.get(metric.name) is not None:
                values[metric.name] = [measured[metric.name]]
        return Run(provider=provider, round_number=number, load=load, values=values)


def plans(options: argparse.Namespace, folder: Path) -> Iterator[Plan]:
    """Yield one plan for each case, by the options of ``benches/run.py``."""
    for case in CASES:
        of_stores = case.kind == "aggregation"
        yield Plan(
            case=case,
            folder=folder,
            providers=tuple(options.providers) if of_stores else (MEASURED,),
            rounds=options.rounds,
            driver_memory=options.driver_memory,
            jfr=options.jfr,
            before=8 if of_stores else 2,
            rows=20_000 if of_stores else 100,
        )
