"""Every provider under the same faults: the tables of docs/faults.md.

``python -m support.spark.fault_report`` runs the query on each provider, with each fault. After
each query it writes the results to ``tests/spark/faults.json``. ``--part``, ``--provider`` and
``--query`` choose some, and ``--tables`` only makes the tables.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from support import TESTS, environment
from support.markdown import table, with_tables
from support.spark.class_archive import archive, ensure, quick_start
from support.spark.fault_queries import QUERIES
from support.spark.fault_report_job import REPORTED, runs
from support.spark.file_faults import KINDS, LOGS

FOUND = TESTS / "spark" / "faults.json"
DOCUMENT = TESTS.parent / "docs" / "faults.md"

#: Names of providers in the document.
TITLES = {
    "default": "Spark's default",
    "rocksdb": "RocksDB",
    "rocksdb-changelog": "RocksDB with changelog",
    "holdfast": "Holdfast",
}
#: Programs of the parts of the report, and their queries.
PARTS = {
    "files": (["fault_report_job"], list(QUERIES)),
    "files on S3": (["fault_report_job", "--s3"], ["aggregation"]),
    "kills": (["process_faults", "--kills"], list(QUERIES)),
    "processes": (["process_faults"], list(QUERIES)),
    "processes on S3": (["process_faults", "--s3"], ["aggregation"]),
    "executors on S3": (["process_faults", "--executors"], list(QUERIES)),
}
#: The ends of a query in words of the document, the worst first.
SAID = {
    "wrong": "**wrong rows**",
    "hangs": "hangs",
    "error": "error",
    "restart": "stops",
    "refused": "one stops",
    "right": "continues",
}
#: Seconds for one part, provider and query.
TIMEOUT_S = 3600

Found = Sequence[dict[str, Any]]


def run(part: str, provider: str, query: str) -> list[dict[str, Any]]:
    """Run a query under the faults of a part on a provider."""
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        results, log = Path(folder, "results.jsonl"), Path(folder, "log")
        name, *options = PARTS[part][0]
        job = [sys.executable, "-m", f"support.spark.{name}", provider]
        with log.open("w") as out:
            done = subprocess.run(
                [*job, str(Path(folder, "run")), str(results), *options, f"--query={query}"],
                env=environment(quick_start(archive())),
                stdout=out,
                stderr=out,
                timeout=TIMEOUT_S,
            )
        if done.returncode:
            raise SystemExit(log.read_text()[-4000:])
        return [{"part": part, **json.loads(line)} for line in results.read_text().splitlines()]


def cell(found: Found) -> str:
    """Return the results of the runs of a cell, and their number."""
    counts = Counter(one["outcome"] for one in found)
    if not counts:
        return ""
    said = [f"{text} {counts[outcome]}" for outcome, text in SAID.items() if counts[outcome]]
    return ", ".join(said)


def chosen(found: Found, **values: str) -> Found:
    """Return the runs with these values."""
    return [one for one in found if values.items() <= one.items()]


def alike(rows: Iterable[tuple[str, Sequence[str]]]) -> dict[tuple[str, ...], list[str]]:
    """Return the names of rows by their cells."""
    names: dict[tuple[str, ...], list[str]] = {}
    for name, cells in rows:
        names.setdefault(tuple(cells), []).append(name)
    return names


def of_files(found: Found, part: str, kinds: Iterable[str]) -> Iterator[str]:
    """The table of a part with faults of files: a line for each kind, and its providers."""
    of_part = chosen(found, part=part)
    faults = list(dict.fromkeys(one["fault"] for one in of_part))
    rows = []
    for kind in kinds:
        name = kind.rpartition(": ")[2]
        of_providers = [
            (title, [cell(chosen(of_kind, fault=fault)) for fault in faults])
            for provider, title in TITLES.items()
            if (of_kind := chosen(of_part, kind=kind, provider=provider))
        ]
        for cells, titles in alike(of_providers).items():
            rows.append([f"`.{name}`" if ": " in kind else name, named(titles), *cells])
    yield from table(["file", "provider", *faults], rows)


def named(titles: Sequence[str]) -> str:
    """Name some providers."""
    *of_spark, _ = TITLES.values()
    if titles == of_spark:
        return "Spark's providers"
    return "every provider" if len(titles) == len(TITLES) else ", ".join(titles)


def of_processes(found: Found, parts: Iterable[str], *, power: bool = False) -> Iterator[str]:
    """The table of power cuts, or of the other faults of processes."""
    of_part = [
        one
        for part in parts
        for one in chosen(found, part=part)
        if one["kind"].startswith("power cut") == power
    ]
    rows = []
    for kind in dict.fromkeys(one["kind"] for one in of_part):
        of_kind = chosen(of_part, kind=kind)
        of_faults = [
            (fault, [cell(chosen(of_kind, fault=fault, provider=one)) for one in TITLES])
            for fault in dict.fromkeys(one["fault"] for one in of_kind)
        ]
        for cells, faults in alike(of_faults).items():
            rows.append([kind, ", ".join(faults), *cells])
    yield from table(["fault", "when", *TITLES.values()], rows)


def tables(found: Found) -> dict[str, Iterator[str]]:
    """Return the tables of the document by their names."""
    state = [kind for kind in KINDS if kind not in LOGS]
    return {
        "state": of_files(found, "files", state),
        "logs": of_files(found, "files", LOGS),
        "s3": of_files(found, "files on S3", KINDS),
        "processes": of_processes(found, ["kills", "processes"]),
        "power": of_processes(found, ["processes"], power=True),
        "processes-s3": of_processes(found, ["processes on S3", "executors on S3"]),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", action="store_true", help="only make the tables again")
    parser.add_argument("--part", action="append", choices=PARTS)
    parser.add_argument("--provider", action="append", choices=REPORTED)
    parser.add_argument("--query", action="append", choices=QUERIES)
    args = parser.parse_args(arguments)
    if not args.tables:
        ensure(archive())
    for part in [] if args.tables else args.part or PARTS:
        for provider in args.provider or REPORTED:
            for query in PARTS[part][1]:
                if runs(query, provider) and query in (args.query or QUERIES):
                    print(f"{part}: {query} on {TITLES[provider]} ...", flush=True)
                    new = run(part, provider, query)
                    print(f"  {dict(Counter(one['outcome'] for one in new))}", flush=True)
                    write(new)
    found = json.loads(FOUND.read_text())
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(), tables(found)))


def write(new: Found) -> None:
    """Replace known results by new ones."""

    def place(one: dict[str, Any]) -> tuple[int, int, int]:
        part, provider, query = one["part"], one["provider"], one["query"]
        return [*PARTS].index(part), [*REPORTED].index(provider), [*QUERIES].index(query)

    replaced = {place(one) for one in new}
    known = [one for one in json.loads(FOUND.read_text()) if place(one) not in replaced]
    lines = ",\n".join(json.dumps(one) for one in sorted([*known, *new], key=place))
    FOUND.write_text(f"[\n{lines}\n]\n")


if __name__ == "__main__":
    main()
