"""The one entry point of all benchmarks: ``make bench``, or ``python benches/run.py --help``.

Every benchmark compares implementations in one run and prints ratios, because absolute
times say little on a shared machine.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from spark import groupby_count, report

from holdfast.demo.needs import MissingNeedError, check_needs
from holdfast.demo.process import ChildError
from holdfast.demo.providers import PROVIDERS
from holdfast.demo.screen import Screen

RESULTS = Path(__file__).parent / "results"


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options from the command line."""
    parser = argparse.ArgumentParser(prog="benches/run.py", description=__doc__)
    parser.add_argument("--quick", action="store_true", help="1 round of 3 batches")
    parser.add_argument("--rounds", type=int, help="every provider runs once per round (3)")
    parser.add_argument("--batches", type=int, help="batches per run, batch 0 included (6)")
    parser.add_argument("--rows", type=int, default=200_000, help="rows per batch (200000)")
    parser.add_argument("--keys", type=int, default=1_000_000, help="distinct keys (1000000)")
    parser.add_argument("--partitions", type=int, default=200, help="shuffle partitions (200)")
    parser.add_argument("--driver-memory", default="4g", help="heap of each JVM (4g)")
    parser.add_argument(
        "--providers",
        nargs="+",
        choices=PROVIDERS,
        default=list(groupby_count.ALL_PROVIDERS),
        help="providers to compare (all four)",
    )
    parser.add_argument(
        "--folder", type=Path, help="parent of the working folder (the system's temporary folder)"
    )
    options = parser.parse_args(arguments)
    options.rounds = options.rounds or (1 if options.quick else 3)
    options.batches = options.batches or (3 if options.quick else 6)
    if options.batches < 2:
        parser.error(f"--batches: expected at least 2, batch 0 is dropped; found {options.batches}")
    return options


def main(arguments: list[str] | None = None) -> int:
    """Run the benchmarks; the exit status is 0 if every run ended with the right state."""
    parsed = parse_args(arguments)
    try:
        versions = check_needs(packages=("pyspark", "pyarrow", "numpy"))
    except MissingNeedError as error:
        print(f"benches/run.py: {error}", file=sys.stderr)
        return 2
    screen = Screen()
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=parsed.folder) as folder:
        plan = groupby_count.Plan(
            folder=Path(folder),
            providers=tuple(parsed.providers),
            rounds=parsed.rounds,
            batches=parsed.batches,
            rows=parsed.rows,
            keys=parsed.keys,
            partitions=parsed.partitions,
            driver_memory=parsed.driver_memory,
        )
        screen.say(f"groupBy(key).count() on {versions}")
        screen.say(plan.describe())
        try:
            runs = groupby_count.measure(plan, screen)
        except (ChildError, groupby_count.WrongStateError) as error:
            screen.verdict(str(error), good=False)
            return 1
    report.show(runs, screen=screen)
    path = report.save(runs, plan=plan, versions=versions, folder=RESULTS)
    screen.say(f"\nAll figures of all batches: {path}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
