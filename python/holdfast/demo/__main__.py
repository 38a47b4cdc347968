"""Command line of the demo. Exit status: 0 every check held, 1 one failed, 2 it cannot run."""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from holdfast.demo.needs import MissingNeedError, check_needs


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options from the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m holdfast.demo",
        description="Run two streaming queries on Spark's default state store provider and on "
        "Holdfast, compare what they leave in the checkpoint, then kill a run, resume it, and "
        "compare its rows with a batch computation.",
    )
    parser.add_argument("--partitions", type=int, default=32, help="shuffle partitions (32)")
    parser.add_argument("--batches", type=int, default=6, help="micro-batches with input (6)")
    parser.add_argument(
        "--only", choices=("delays", "weather"), action="append", help="run only this query"
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
    with tempfile.TemporaryDirectory(prefix="holdfast-demo-") as folder:
        yield Path(folder)


def main(arguments: list[str] | None = None) -> int:
    """Run the demo and return the exit status."""
    parsed = parse_args(arguments)
    try:
        versions = check_needs()
    except MissingNeedError as error:
        print(f"holdfast demo: {error}", file=sys.stderr)
        return 2
    # These import pyarrow, which is known to be there only now.
    from holdfast.demo.process import ChildError
    from holdfast.demo.queries import QUERIES
    from holdfast.demo.scenario import Demo, Options
    from holdfast.demo.screen import Screen

    screen = Screen()
    screen.say(f"Holdfast demo on {versions}")
    with working_folder(parsed.keep) as folder:
        options = Options(
            folder=folder,
            provider=parsed.provider,
            partitions=parsed.partitions,
            batches=parsed.batches,
            queries=tuple(name for name in QUERIES if name in (parsed.only or QUERIES)),
        )
        try:
            return 0 if Demo(options, screen).run() else 1
        except ChildError as error:
            screen.verdict(str(error), good=False)
            return 1
        except KeyboardInterrupt:
            screen.say("interrupted; every process that was started has been stopped")
            return 130
        finally:
            if parsed.keep is not None:
                screen.say(f"kept: {folder}")


if __name__ == "__main__":
    sys.exit(main())
