"""Every provider under the same faults: the tables of docs/faults.md.

``python -m support.spark.fault_report`` runs the query on each provider, with each fault, and
writes what it found to ``tests/spark/faults.json``. ``--tables`` only makes the tables again.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from support import TESTS, environment, program
from support.markdown import table, with_tables
from support.spark.fault_report_job import REPORTED
from support.spark.file_faults import FAULTS, KINDS, LOGS

FOUND = TESTS / "spark" / "faults.json"
DOCUMENT = TESTS.parent / "docs" / "faults.md"

#: Providers as the document names them.
TITLES = {
    "default": "Spark's default",
    "rocksdb": "RocksDB",
    "rocksdb-changelog": "RocksDB with changelog",
    "holdfast": "Holdfast",
}
#: What became of a query, as the document says it; the worst first.
SAID = {
    "wrong": "**wrong rows**",
    "hangs": "hangs",
    "error": "error",
    "right": "goes on",
}
#: Seconds for all faults on one provider.
TIMEOUT_S = 3600

Found = Sequence[dict[str, Any]]


def run(providers: Sequence[str]) -> list[dict[str, Any]]:
    """Run the query under all faults, on one provider after the other."""
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
        for provider in providers:
            print(f"{TITLES[provider]} ...", flush=True)
            results, log = Path(folder, "results.jsonl"), Path(folder, "log")
            job = [sys.executable, program("spark/fault_report_job.py"), provider]
            with log.open("w") as out:
                done = subprocess.run(
                    [*job, str(Path(folder, provider)), str(results)],
                    env=environment(),
                    stdout=out,
                    stderr=out,
                    timeout=TIMEOUT_S,
                )
            if done.returncode:
                raise SystemExit(log.read_text()[-4000:])
            of_provider = [json.loads(line) for line in results.read_text().splitlines()]
            print(f"  {dict(Counter(one['outcome'] for one in of_provider))}", flush=True)
            found += of_provider
    return found


def cell(found: Found) -> str:
    """Say what became of the runs of a cell, and how many there were."""
    counts = Counter(one["outcome"] for one in found)
    if not counts:
        return ""
    said = [f"{text} {counts[outcome]}" for outcome, text in SAID.items() if counts[outcome]]
    return ", ".join(said)


def of_state(found: Found) -> Iterator[str]:
    """Files of state, by provider and fault."""
    rows = []
    for provider, title in TITLES.items():
        for kind in KINDS:
            chosen = [one for one in found if (one["provider"], one["kind"]) == (provider, kind)]
            if chosen and kind not in LOGS:
                of = [[one for one in chosen if one["fault"] == fault] for fault in FAULTS]
                name = kind.rpartition(": ")[2]
                rows.append([title, f"`.{name}`" if ": " in kind else name, *map(cell, of)])
    yield from table(["provider", "file", *FAULTS], rows)


def of_logs(found: Found) -> Iterator[str]:
    """Spark's own logs, by provider and fault."""
    rows = []
    for kind in LOGS:
        for provider, title in TITLES.items():
            chosen = [one for one in found if (one["provider"], one["kind"]) == (provider, kind)]
            of = [[one for one in chosen if one["fault"] == fault] for fault in FAULTS]
            rows.append([kind, title, *map(cell, of)])
    yield from table(["file", "provider", *FAULTS], rows)


def main(arguments: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--tables", action="store_true", help="only make the tables again")
    parser.add_argument("--provider", action="append", choices=REPORTED)
    args = parser.parse_args(arguments)
    if not args.tables:
        chosen = args.provider or list(REPORTED)
        kept = json.loads(FOUND.read_text()) if FOUND.exists() else []
        kept = [one for one in kept if one["provider"] not in chosen]
        found = sorted([*kept, *run(chosen)], key=lambda one: list(REPORTED).index(one["provider"]))
        lines = ",\n".join(json.dumps(one) for one in found)
        FOUND.write_text(f"[\n{lines}\n]\n")
    found = json.loads(FOUND.read_text())
    tables = {"state": of_state(found), "logs": of_logs(found)}
    DOCUMENT.write_text(with_tables(DOCUMENT.read_text(), tables))


if __name__ == "__main__":
    main()
