"""The one entry point of all benchmarks: ``make bench``, or ``python benches/run.py --help``.

Every benchmark compares implementations in one run and prints ratios, because absolute
times say little on a shared machine.
"""

from __future__ import annotations

import argparse
import os
import platform
import shlex
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from importlib.util import find_spec
from pathlib import Path

# The benchmarks and the examples share a harness; the tests have the older minors of Spark.
sys.path += [str(Path(__file__).resolve().parents[1] / name) for name in ("examples", "tests")]

from common import compare, report
from common.java import BuildError
from common.plan import Plan
from common.rounds import ALL_PROVIDERS, WrongStateError
from common.targets import Verdict
from gpu import state
from memory import measure as memory
from moves import measure as moves
from reading import measure as reading
from realtime import measure as realtime
from regional import coordinator, idle, keyed, pipeline, regions, requests
from resident import backfill
from resident import measure as resident
from resident.queries import ALL_QUERIES as OPERATORS
from restarts import measure as restarts
from scale import measure as scale
from settings import measure as settings
from spark import measure as queries
from spark.cases import SUITES
from spark.queries import QUERIES
from store import larger, writes
from store import measure as store

from harness.needs import MissingNeedError, check_needs
from harness.process import ChildError
from harness.providers import PROVIDERS
from harness.screen import Screen
from support.spark.other_spark import environment_of, minors

RESULTS = Path(__file__).parent / "results"

GPU = "gpu"

#: What each suite measures, in the order in which suites run.
PLANS: Mapping[str, Callable[[argparse.Namespace, Path], Iterator[Plan]]] = {
    "store": store.plans,
    "sizes": store.plans_by_size,
    "restores": store.plans_of_restores,
    "writes": writes.plans,
    "larger": larger.plans,
    "resident": resident.plans,
    "backfill": backfill.plans,
    "coordinator": coordinator.plans,
    "idle": idle.plans,
    "keyed": keyed.plans,
    "state": partial(state.plans, "numpy"),
    GPU: partial(state.plans, "cupy"),
    "pipeline": partial(pipeline.plans, pipeline.CASES),
    "bykey": partial(pipeline.plans, [pipeline.BY_KEY]),
    "regions": regions.plans,
    "requests": requests.plans,
    "restarts": restarts.plans,
    "realtime": realtime.plans,
    "scale": scale.plans,
    "memory": memory.plans,
    "isolation": settings.plans_of_isolation,
    "bad-rows": settings.plans_of_bad_rows,
    "copies": settings.plans_of_copies,
    "moves": partial(moves.plans, copies=True),
    "repartition": partial(moves.plans, copies=False),
    "reading": reading.plans,
    **{suite: partial(queries.plans, cases) for suite, cases in SUITES.items()},
}

_WITHOUT_SPARK = {"coordinator", "idle", "keyed", "state", GPU}

SUITES_HELP = """\
compare BEFORE AFTER takes two result files of one suite, and says what got worse beyond the noise.
report RECORD... -o FOLDER prints result files and draws them, as every run does in the end.

suites:
  store    single rows, scans, commits and restores of one store of 1 M keys, below any query
  sizes    the same of stores of 100,000 to 1.6 M keys
  restores  restores of stores of 1, 3 and 10 M keys, and gets of all their keys
  writes   what one store of 1 M keys writes over 2,000 batches of 0.1 % changed keys
  larger   batches on one store whose memory is limited to a tenth of it
  resident  resident memory of queries with ten times the state that memory holds (needs jcmd)
  backfill  a first batch larger than memory: time, resident memory, bytes written (needs jcmd)
  coordinator  a checkpoint of 10,000 regions of which 30 % fail: no Spark
  idle     10 active regions of 20,000 known ones, beside 10 of 10: no Spark
  keyed    a table of 1 M keys in a pipeline, beside no state and a dict; starts: no Spark
  state    snapshots and restore of one large NumPy array, beside numpy.save and PyTorch: no Spark
  gpu      the same of a CuPy array, digests, the copy to the host, memory (needs a GPU)
  pipeline  regional pipelines of 64 regions: healthy, one failing, held or slow; and of 2,048
  bykey    a table by key in a pipeline, beside transformWithState in Python on RocksDB
  regions  10,000 regions on two executors: from the last row to the published checkpoint
  requests  what checkpoints of a pipeline ask HDFS and S3 for (needs Maven the first time)
  restarts  what queries and pipelines do first when they go on from HDFS and S3 (the same)
  realtime  latency in Real-Time Mode and the gap between batches (Spark 4.3; Maven the first time)
  scale    the driver with 10, 100 and 1,000 simulated executors, on a store that counts requests
  memory   native memory of one JVM over 3,000 batches of a small query (needs the JDK's jcmd)
  isolation  single batches with and without isolation of failures, on 20 and 200 partitions
  bad-rows  the same with and without a guard for bad rows, on 20 partitions
  copies   the same with and without copies of commits, on three executors and an S3 server
  moves    adopt and leave, beside the offline repartition of the same RocksDB state (Spark 4.3)
  repartition  200 to 400 to 150 partitions, and the first batches behind, beside the same
  reading  opens, gets and scans without Spark, and branches, of 10 M keys (Maven the first time)
  many     queries on 200 partitions
  few      the same on 20 partitions
  partitions  an aggregation on 20 to 800 partitions
  hdfs     queries on 200 partitions, checkpoints on HDFS (needs Maven the first time)
  delayed  the same on a file system where every create takes as long as on an object store
  tiny     one partition with next to no state: the cost of being there
"""


def count(text: str) -> int:
    """Read how many of something, for options where 0 could only be taken for the default."""
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"expected at least 1, found {number}")
    return number


def parse_args(arguments: list[str] | None = None) -> argparse.Namespace:
    """Read the options from the command line."""
    parser = argparse.ArgumentParser(
        prog="benches/run.py",
        description=__doc__,
        epilog=SUITES_HELP,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "suites",
        nargs="*",
        metavar="SUITE",
        help=f"{', '.join(PLANS)} (all that can run here)",
    )
    parser.add_argument("--quick", action="store_true", help="1 round of 3 batches")
    parser.add_argument("--rounds", type=count, help="every provider runs once per round (5)")
    parser.add_argument("--batches", type=count, help="batches per run, the warm-up included (4)")
    parser.add_argument(
        "--memory-batches", type=count, help="batches of a run of the suite memory (3000)"
    )
    parser.add_argument(
        "--write-batches", type=count, help="batches of a run of the suite writes (2000)"
    )
    parser.add_argument(
        "--resident-batches", type=count, help="batches of a run of the suite resident (30)"
    )
    parser.add_argument(
        "--target-mib",
        type=count,
        help="memory that state may take, suites resident and backfill (128)",
    )
    parser.add_argument(
        "--partitions", type=count, default=20, help="partitions of the suite resident (20)"
    )
    parser.add_argument(
        "--executors", type=count, help="only this number of executors of the suite scale"
    )
    parser.add_argument(
        "--warm-up",
        type=int,
        default=1,
        help="batches of a run that are dropped from the times (1)",
    )
    parser.add_argument(
        "--query",
        choices=dict.fromkeys((*QUERIES, *OPERATORS)),
        help="only this query of the suites that run queries (all)",
    )
    parser.add_argument(
        "--keys",
        type=count,
        help="keys of a store (1000000, larger 2000000, of moves 100000, of reading 10000000)",
    )
    parser.add_argument(
        "--rows",
        type=count,
        help="rows of a batch of larger (a thousandth of the keys), resident (38400), backfill",
    )
    parser.add_argument(
        "--free-rocksdb",
        action="store_true",
        help="the suite larger limits the memory of Holdfast alone",
    )
    parser.add_argument(
        "--changelogs", type=int, default=50, help="commits before a restore (50); 0: no restores"
    )
    parser.add_argument("--state-mib", type=int, help="size of an array state (512, on a GPU 4096)")
    parser.add_argument("--driver-memory", default="4g", help="heap of each JVM (4g)")
    parser.add_argument(
        "--providers",
        nargs="+",
        choices=PROVIDERS,
        default=list(ALL_PROVIDERS),
        help="providers to compare (all four)",
    )
    parser.add_argument(
        "--spark",
        choices=minors(),
        help="an older Spark minor, fetched once (450 MB), in place of the installed one",
    )
    parser.add_argument(
        "--folder", type=Path, help="parent of the working folder (the system's temporary folder)"
    )
    parser.add_argument(
        "--jfr", type=Path, metavar="FOLDER", help="record every JVM with Flight Recorder"
    )
    options = parser.parse_args(arguments)
    unknown = [suite for suite in options.suites if suite not in PLANS]
    if unknown:
        parser.error(f"expected suites among {', '.join(PLANS)}, found {', '.join(unknown)}")
    if options.state_mib is not None and options.state_mib < 64:
        parser.error(f"--state-mib: expected at least 64, found {options.state_mib}")
    missing = state.missing_device()
    if GPU in options.suites and missing is not None:
        parser.error(f"{GPU} cannot be measured here: {missing}")
    options.suites = options.suites or [suite for suite in PLANS if suite != GPU or missing is None]
    options.rounds = options.rounds or (1 if options.quick else 5)
    options.batches = options.batches or (3 if options.quick else 4)
    if options.warm_up < 1:
        parser.error(f"--warm-up: expected at least 1, found {options.warm_up}")
    if options.memory_batches is not None and options.memory_batches < 100:
        parser.error(f"--memory-batches: expected at least 100, found {options.memory_batches}")
    if options.batches <= options.warm_up:
        parser.error(
            f"--batches: expected more than the {options.warm_up} of the warm-up, "
            f"found {options.batches}"
        )
    return options


def results(
    options: argparse.Namespace, folder: Path, screen: Screen
) -> Iterator[tuple[str, report.Result]]:
    """Measure suite by suite; yield what each measures, in a few lines, and what it measured."""
    for suite, plans in PLANS.items():
        if suite in options.suites:
            for plan in plans(options, folder):
                screen.heading(plan.title)
                described = plan.describe()
                screen.say(described)
                yield described, plan.measure(screen)


def _versions(suites: list[str]) -> str:
    if set(suites) <= _WITHOUT_SPARK:
        return f"Python {platform.python_version()}"
    return check_needs(packages=("pyspark", "pyarrow", "numpy"))


def _move_to(minor: str) -> None:
    """Go on with the same arguments in a process whose PySpark is that of a minor, if it is not."""
    from support.spark.minors import INSTALLED

    if minor != INSTALLED:
        os.execve(sys.executable, [sys.executable, *sys.argv], environment_of(minor))


def main() -> int:
    """Run the benchmarks; the exit status is 0 if every run ended with the right state."""
    if sys.argv[1:2] == ["compare"]:
        return compare.main(sys.argv[2:])
    if sys.argv[1:2] == ["report"]:
        from common import pictures

        return pictures.main(sys.argv[2:])
    options = parse_args()
    if options.spark is not None:
        _move_to(options.spark)
    try:
        versions = _versions(options.suites)
    except MissingNeedError as error:
        print(f"benches/run.py: {error}", file=sys.stderr)
        return 2
    if options.jfr is not None:
        options.jfr.mkdir(parents=True, exist_ok=True)
    screen = Screen()
    screen.say(versions)
    verdicts: list[Verdict] = []
    records: list[Path] = []
    command = shlex.join(["benches/run.py", *sys.argv[1:]])
    with tempfile.TemporaryDirectory(prefix="holdfast-bench-", dir=options.folder) as folder:
        try:
            for described, result in results(options, Path(folder), screen):
                report.show(result, screen=screen)
                path = report.save(
                    result,
                    versions=versions,
                    folder=RESULTS,
                    described=described,
                    command=command,
                )
                records.append(path)
                screen.say(f"\nAll figures: {path}")
                verdicts += result.verdicts()
        except (BuildError, ChildError, WrongStateError) as error:
            screen.verdict(str(error), good=False)
            return 1
        finally:
            # Draws measurements from before an error, too.
            if records and find_spec("matplotlib"):  # not on every machine with a GPU
                from common import pictures

                drawn = pictures.save(records, RESULTS)
                screen.say("\n".join(["", *(f"Picture: {path}" for path in drawn)]))
    screen.heading("targets")
    report.show_verdicts(verdicts, screen=screen)
    return 0


if __name__ == "__main__":
    sys.exit(main())
