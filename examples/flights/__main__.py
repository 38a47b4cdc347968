"""Command line of the demo. Exit status: 0 every check held, 1 one failed, 2 it cannot run."""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from harness.needs import MissingNeedError, check_needs

if TYPE_CHECKING:
    from harness.checks import Checks
    from harness.screen import Screen

PARTS = ("stores", "regions")


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m flights",
        description="First part: run two streaming queries on Spark's default state store provider "
        "and on Holdfast, compare what they leave in the checkpoint, then kill a run, resume it, "
        "and compare its rows with a batch computation. Second part: run a regional pipeline with "
        "a region that fails and one that is slow, kill and resume it, and compare its rows with "
        "those of an undisturbed run and of a batch computation.",
    )
    parser.add_argument(
        "--part", choices=PARTS, action="append", help="run only this part: stores or regions"
    )
    parser.add_argument(
        "--partitions", type=int, default=32, help="shuffle partitions of the first part (32)"
    )
    parser.add_argument(
        "--batches", type=int, default=6, help="micro-batches with input of the first part (6)"
    )
    parser.add_argument(
        "--only",
        choices=("delays", "weather"),
        action="append",
        help="run only this query of the first part",
    )
    parser.add_argument(
        "--keep",
        type=Path,
        metavar="DIR",
        help="work in DIR, which must be new or empty, and keep it",
    )
    parser.add_argument(
        "--provider",
        choices=("holdfast", "spark", "rocksdb", "rocksdb-changelog"),
        default="holdfast",
        help="put another provider in Holdfast's place (the object counts then fail the check)",
    )
    options = parser.parse_args(arguments)
    if options.batches < 2:
        parser.error(f"--batches: expected at least 2, found {options.batches}")
    if options.partitions < 2:
        parser.error(f"--partitions: expected at least 2, found {options.partitions}")
    if options.keep is not None and options.keep.exists() and any(options.keep.iterdir()):
        parser.error(f"--keep: {options.keep} is not empty")
    return options


@contextmanager
def working_folder(keep: Path | None) -> Iterator[Path]:
    """Yield the folder to keep, or a temporary one that is removed at the end."""
    if keep is not None:
        keep.mkdir(parents=True, exist_ok=True)
        yield keep.resolve()
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-flights-") as folder:
        yield Path(folder)


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return the exit status."""
    parsed = parse_args(arguments)
    try:
        versions = check_needs()
    except MissingNeedError as error:
        print(f"holdfast demo: {error}", file=sys.stderr)
        return 2
    # These import pyarrow, whose presence is checked before.
    from harness.checks import Checks
    from harness.process import ChildError
    from harness.screen import Screen

    screen = Screen()
    checks = Checks(screen)
    screen.say(f"Holdfast demo on {versions}")
    started = time.monotonic()
    with working_folder(parsed.keep) as folder:
        try:
            run_parts(parsed, folder, screen, checks)
        except ChildError as error:
            screen.verdict(str(error), good=False)
            return 1
        except KeyboardInterrupt:
            screen.say("interrupted; every process that was started has been stopped")
            return 130
        finally:
            if parsed.keep is not None:
                screen.say(f"kept: {folder}")
    seconds = time.monotonic() - started
    screen.heading("Result")
    if checks.failed:
        screen.verdict(f"{checks.failed} checks failed, {seconds:.0f} s", good=False)
        return 1
    screen.verdict(f"every check held, {seconds:.0f} s", good=True)
    return 0


def run_parts(parsed: argparse.Namespace, folder: Path, screen: Screen, checks: Checks) -> None:
    """Run the requested parts, each in its own folder."""
    from flights.queries import QUERIES
    from flights.regions import RegionalDemo
    from flights.stores import Demo, Options

    parts = parsed.part or PARTS
    if "stores" in parts:
        options = Options(
            folder=folder / "stores",
            provider=parsed.provider,
            partitions=parsed.partitions,
            batches=parsed.batches,
            queries=tuple(name for name in QUERIES if name in (parsed.only or QUERIES)),
        )
        options.folder.mkdir()
        Demo(options, screen, checks).run()
    if "regions" in parts:
        (folder / "regions").mkdir()
        RegionalDemo(folder / "regions", screen, checks).run()


if __name__ == "__main__":
    sys.exit(main())
