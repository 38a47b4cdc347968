"""Options of state stores, each declared once.

`spark_conf`, `configure`, the command line and the reference read these declarations. The plugin
reads the settings: io.holdfast.spark.HoldfastConf has the same keys and defaults.
"""

from __future__ import annotations

import inspect
import re
import textwrap
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal, TypedDict, TypeVar, get_args, get_type_hints

from holdfast._checks import (
    Allowed,
    not_allowed,
    require_allowed,
    require_bool,
    require_one_of,
    require_share,
    whole_number,
)

F = TypeVar("F", bound=Callable[..., Any])

Compression = Literal["lz4", "none"]
Rerun = Literal["fail", "at-least-once"]
End = Literal["fail", "log"]
Rebalance = Literal["auto", "off"]

#: Spark ships settings with this prefix to executors.
STORE: Final = "spark.sql.streaming.stateStore"

#: Default of state stores, of regional pipelines and of the core.
DEFAULT_MAX_FILE_BYTES: Final = 32 << 20

#: A size that lets the executor decide, which knows its memory.
AUTO: Final = "auto"

_MIN_MEMORY_BYTES: Final = 1 << 20
_MAX_LONG: Final = (1 << 63) - 1

# Spark's notation of sizes: 64m and 64mb are 64 MiB.
_SIZE: Final = re.compile(r"(?P<number>[0-9]+)(?:(?P<unit>[kmgtp])b?|b)?")
_SHIFTS: Final = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}


@dataclass(frozen=True, kw_only=True)
class Option:
    """An option of state stores.

    Attributes
    ----------
    setting : str
        Name of Spark's setting, without the prefix.
    default : object
        Its value if the caller gives none.
    shown : str
        Its type and default for docstrings.
    meaning : str
        Its effect. The first sentence is the help of the command line.
    allowed : Allowed
        Its values: a flag, a whole number, a share, a size in bytes (with a note also ``"auto"`` or
        0), or a name.
    names : tuple of str
        The names that it may be.
    """

    setting: str
    default: Any
    shown: str
    meaning: str
    allowed: Allowed
    names: tuple[str, ...] = ()

    @property
    def key(self) -> str:
        """Spark's key."""
        return f"{STORE}.holdfast.{self.setting}"

    def written(self, name: str, value: object) -> str:
        """Return the key's value for an option's value, or raise ValueError."""
        if self.allowed.kind == "flag":
            return str(require_bool(name, value)).lower()
        if self.allowed.unit == "bytes":
            return self._size(name, value)
        if self.allowed.kind == "integer":
            return str(require_allowed(name, value, self.allowed))
        if self.allowed.unit == "share":
            return str(require_share(name, value))
        require_one_of(name, value, self.names)
        return str(value)

    def _size(self, name: str, value: object) -> str:
        allowed, size, words = self.allowed, _bytes(value), ""
        if allowed.optional:
            words = "None, "
            if value is None:
                return "0"
        if allowed.note:
            words = f"{AUTO!r}, 0, "
            if value == AUTO or size == 0:
                return AUTO if value == AUTO else "0"
        if size is not None and allowed.least <= size <= (allowed.most or _MAX_LONG):
            return str(size)
        bounds = f"{allowed.least} bytes or more" if allowed.least else "0 or more"
        if allowed.most is not None:
            bounds = f"from {allowed.least} to {allowed.most} bytes"
        expected = f"{words}a number of bytes, or a size such as '8g', {bounds}"
        raise not_allowed(name, value, expected)


class StoreOptions(TypedDict, total=False):
    """Options of state stores, for `spark_conf` and `configure`."""

    max_file_bytes: Annotated[
        int | str | None,
        Option(
            setting="maxFileBytes",
            default=DEFAULT_MAX_FILE_BYTES,
            shown="int or str, default 32 MiB",
            meaning="""Size at which a physical file is sealed and the next one is begun, in bytes
            or in Spark's notation (``"64m"`` is 64 MiB). A soft bound: the segment that crosses it
            is still written whole. From 4 KiB to 1 TiB.""",
            allowed=Allowed("other", unit="bytes", least=4 << 10, most=1 << 40),
        ),
    ]
    compression: Annotated[
        Compression | None,
        Option(
            setting="compression",
            default="lz4",
            shown='{"lz4", "none"}, default "lz4"',
            meaning="""Compression of payloads on disk, ``lz4`` or ``none``. Every build reads
            both.""",
            allowed=Allowed("other", note="`lz4` or `none`"),
            names=get_args(Compression),
        ),
    ]
    max_memory_bytes: Annotated[
        int | str | None,
        Option(
            setting="maxMemoryBytes",
            default=None,
            shown="int or str, optional",
            meaning="""Limit on the native memory that the state of one executor takes, 1 MiB or
            more, in bytes or in Spark's notation. State may be larger: keys that batches do not
            touch leave memory once a run holds them. A task that needs more fails with an error
            that says so, instead of the whole executor being killed. Without it there is no limit.
            Native memory is not part of the JVM's heap: leave room for it in
            ``spark.executor.memoryOverhead``.""",
            allowed=Allowed("other", unit="bytes", least=_MIN_MEMORY_BYTES, optional=True),
        ),
    ]
    target_memory_bytes: Annotated[
        int | str | None,
        Option(
            setting="targetMemoryBytes",
            default=AUTO,
            shown='int or str, default "auto"',
            meaning="""Native memory of one executor above which keys that batches do not touch
            leave memory, 1 MiB or more, in bytes or in Spark's notation, or 0 to keep all state in
            memory. ``"auto"`` is three quarters of `max_memory_bytes`. Without that it is a share
            of what the executor has beside its heap, 128 MiB at least: half of
            ``spark.executor.memoryOverhead`` on YARN and Kubernetes, half of what the heap leaves
            of any other container, a quarter of what the heap leaves of a machine.""",
            allowed=Allowed(
                "other",
                unit="bytes",
                least=_MIN_MEMORY_BYTES,
                note=f'`"{AUTO}"`, 0, or 1 MiB or more',
            ),
        ),
    ]
    local_cache_bytes: Annotated[
        int | str | None,
        Option(
            setting="localCacheBytes",
            default=1 << 30,
            shown="int or str, default 1 GiB",
            meaning="""Local disk of one executor for blocks of remote files that it wrote or read,
            in bytes or in Spark's notation, 0 for none. For checkpoints on HDFS or an object store.
            In use from the start if `max_memory_bytes` or a size of `target_memory_bytes` is set,
            else once state has left memory. With several queries the largest value holds. The cache
            lies in Spark's folder for local files (``spark.local.dir``). It goes when the executor
            ends, or once that disk is full.""",
            allowed=Allowed("other", unit="bytes"),
        ),
    ]
    change_journal: Annotated[
        bool | None,
        Option(
            setting="changeJournal",
            default=False,
            shown="bool, default False",
            meaning="""Record every put, append and removal of a batch, beside the final change of
            each key. Spark's ``readChangeFeed`` then shows them all, as with Spark's own providers,
            and a value that the same batch replaced is among them. A batch that changes a key more
            than once, or changes lists, writes every operation a second time, and holds the
            operations in native memory until it commits.""",
            allowed=Allowed("flag"),
        ),
    ]
    spark_files: Annotated[
        bool | None,
        Option(
            setting="sparkFiles",
            default=True,
            shown="bool, default True",
            meaning="""Write the files that Spark itself keeps in a checkpoint, such as
            ``offsets/N`` and ``commits/N``, durably and with few requests. False leaves them to
            Spark's own file manager: a power failure may then take or empty the last entries, and
            an object store renames by a copy, which does not tell which of two drivers was first.
            State is durable before ``commits/N`` either way. A query may be restarted with the
            other value.""",
            allowed=Allowed("flag"),
        ),
    ]
    rebalance: Annotated[
        Rebalance | None,
        Option(
            setting="rebalance",
            default=AUTO,
            shown='{"auto", "off"}, default "auto"',
            meaning="""Whether state moves to executors that have less of it. ``"auto"`` moves it
            where ``spark.dynamicAllocation.enabled`` is true, after executors came or went.
            ``"off"`` leaves it where it is, as Spark does.""",
            allowed=Allowed("other", note="`auto` or `off`"),
            names=get_args(Rebalance),
        ),
    ]
    rebalance_max_moves: Annotated[
        int | None,
        Option(
            setting="rebalanceMaxMoves",
            default=64,
            shown="int, default 64",
            meaning="""Partitions of a query that `rebalance` moves between two batches. Each one is
            opened at its new place in the next batch.""",
            allowed=Allowed("integer", unit="partitions", least=1, most=99_999),
        ),
    ]
    adopt: Annotated[
        bool | None,
        Option(
            setting="adopt",
            default=False,
            shown="bool, default False",
            meaning="""Adopt a checkpoint of Spark's RocksDB or HDFS-backed provider when a query
            starts with it, as ``holdfast adopt`` does. The query begins when its state is copied.
            False refuses such a checkpoint. A checkpoint of Holdfast costs nothing.""",
            allowed=Allowed("flag"),
        ),
    ]
    isolate_failures: Annotated[
        bool | None,
        Option(
            setting="isolateFailures",
            default=False,
            shown="bool, default False",
            meaning="""Complete a batch although the task of a state partition keeps failing
            (experimental). The partition is parked: it keeps its state, and its rows are stored in
            the checkpoint until its task succeeds. Spark reads the setting when a query starts.""",
            allowed=Allowed("flag"),
        ),
    ]
    isolation_max_ratio: Annotated[
        float | None,
        Option(
            setting="isolationMaxRatio",
            default=0.3,
            shown="float, default 0.3",
            meaning="""Share of the partitions of an operator that may be parked (experimental). One
            may always be parked, unless it is the only one, and never all. If more fail, the batch
            fails.""",
            allowed=Allowed("other", unit="share", above=True, most=1),
        ),
    ]
    isolation_max_batches: Annotated[
        int | None,
        Option(
            setting="isolationMaxBatches",
            default=100,
            shown="int, default 100",
            meaning="""Batches whose rows may be parked for one partition (experimental). The query
            fails if the partition fails once more.""",
            allowed=Allowed("integer", unit="batches", least=1, most=1000),
        ),
    ]
    isolation_max_bytes: Annotated[
        int | str | None,
        Option(
            setting="isolationMaxBytes",
            default=1 << 30,
            shown="int or str, default 1 GiB",
            meaning="""Rows that may be parked for one partition, in bytes or in Spark's notation
            (experimental). The query fails if more come.""",
            allowed=Allowed("other", unit="bytes", least=1),
        ),
    ]
    isolation_rerun: Annotated[
        Rerun | None,
        Option(
            setting="isolationRerun",
            default="fail",
            shown='{"fail", "at-least-once"}, default "fail"',
            meaning="""What a restart does if a partition fails in the batch that it runs again
            (experimental). The sink may have the rows of that batch, unless the partition was
            parked before the restart. ``fail`` fails the query, as without isolation.
            ``at-least-once`` parks the partition, so the sink may get its rows twice.""",
            allowed=Allowed("other", note="`fail` or `at-least-once`"),
            names=get_args(Rerun),
        ),
    ]
    isolation_attempts: Annotated[
        int | None,
        Option(
            setting="isolationAttempts",
            default=2,
            shown="int, default 2",
            meaning="""Failures of a task in one batch after which its partition is parked
            (experimental). A partition that was parked before has one attempt in each try. Spark
            ends a batch after ``spark.task.maxFailures`` failures, so one less is the most. Two
            less leave another attempt if an executor dies while it parks.""",
            allowed=Allowed("integer", unit="failures", least=1, most=1000),
        ),
    ]
    isolation_end: Annotated[
        End | None,
        Option(
            setting="isolationEnd",
            default="fail",
            shown='{"fail", "log"}, default "fail"',
            meaning="""What a query with the trigger ``availableNow`` or ``once`` does if rows are
            parked in the end (experimental). ``fail`` ends it with an error that names the
            partitions. ``log`` writes the same to the log, and the query ends as usual.""",
            allowed=Allowed("other", note="`fail` or `log`"),
            names=get_args(End),
        ),
    ]


#: The options by name.
OPTIONS: Final[Mapping[str, Option]] = {
    name: hint.__metadata__[0]
    for name, hint in get_type_hints(StoreOptions, include_extras=True).items()
}


def written(given: Mapping[str, object]) -> dict[str, str]:
    """Return Spark's settings for all options, with defaults for options that are not given.

    Raises
    ------
    TypeError
        If there is no such option.
    ValueError
        If an option has a value that is not allowed.
    """
    for name in given:
        if name not in OPTIONS:
            raise TypeError(f"there is no option {name!r}: expected {', '.join(OPTIONS)}")
    return {
        option.key: option.written(name, given.get(name, option.default))
        for name, option in OPTIONS.items()
    }


def takes_options(*, left_alone: bool) -> Callable[[F], F]:
    """Show the options in signature and docstring of a function that takes them by name.

    Parameters
    ----------
    left_alone : bool
        True if an option that is not given is None, and not its default.
    """
    types = get_type_hints(StoreOptions)

    def decorated(function: F) -> F:
        signature = inspect.signature(function)
        own = [one for one in signature.parameters.values() if one.kind != one.VAR_KEYWORD]
        options = [
            inspect.Parameter(
                name,
                inspect.Parameter.KEYWORD_ONLY,
                default=None if left_alone else option.default,
                annotation=types[name],
            )
            for name, option in OPTIONS.items()
        ]
        ordered = sorted([*options, *own], key=lambda one: one.kind)
        function.__signature__ = signature.replace(parameters=ordered)  # type: ignore[attr-defined]
        if function.__doc__ is not None:  # Python drops docstrings with -OO
            entries = "".join(map(_entry, OPTIONS, OPTIONS.values()))
            function.__doc__ = function.__doc__.replace("    options\n", entries)
        return function

    return decorated


def _entry(name: str, option: Option) -> str:
    """Return the lines of an option in a docstring."""
    indent = " " * 8
    meaning = textwrap.fill(
        " ".join(option.meaning.split()), 100, initial_indent=indent, subsequent_indent=indent
    )
    return f"    {name} : {option.shown}\n{meaning}\n"


def _bytes(size: object) -> int | None:
    """Return a size, a number or in Spark's notation, in bytes. None if it is neither."""
    if (number := whole_number(size)) is not None:
        return number
    found = _SIZE.fullmatch(size.strip().lower()) if isinstance(size, str) else None
    if found is None:
        return None
    return int(found["number"]) << _SHIFTS[found["unit"] or "b"]
