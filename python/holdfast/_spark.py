"""Spark settings that make a Structured Streaming query keep its state in Holdfast."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, Literal, get_args

from holdfast._checks import Allowed, not_allowed, require_bool, require_one_of
from holdfast._jars import plugin_jars
from holdfast._sessions import (
    PLUGIN,
    require_classic_builder,
    require_plugin_if_running,
    runs_plugin,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Compression = Literal["lz4", "none"]

#: Of state stores and of regional pipelines; the core and the plugin have the same default.
DEFAULT_MAX_FILE_BYTES: Final = 32 * 1024 * 1024
MIN_MAX_FILE_BYTES: Final = 4 * 1024
MAX_MAX_FILE_BYTES: Final = 1 << 40
MIN_MEMORY_BYTES: Final = 1 << 20

#: As `target_memory_bytes`: the executor decides, which knows what it has.
AUTO: Final = "auto"

DEFAULT_LOCAL_CACHE_BYTES: Final = 1 << 30

#: What Spark's Structured Streaming page shows of Holdfast, a graph each; the progress has more.
UI_METRICS: Final = (
    "holdfastFilesCreated",
    "holdfastSegments",
    "holdfastStoredBytes",
    "holdfastPinnedBytes",
    "holdfastLoads",
    "holdfastAppendMs",
    "holdfastSealMs",
)
UI_METRICS_KEY: Final = "spark.sql.streaming.ui.enabledCustomMetricList"

# Spark reads these as comma-separated lists: other people's entries stay.
LIST_KEYS: Final = ("spark.jars", "spark.plugins", UI_METRICS_KEY)

# Spark's notation of sizes: 64m and 64mb are 64 MiB.
_SIZE: Final = re.compile(r"(?P<number>[0-9]+)(?:(?P<unit>[kmgtp])b?|b)?")
_SHIFTS: Final = {"b": 0, "k": 10, "m": 20, "g": 30, "t": 40, "p": 50}
_MAX_LONG: Final = (1 << 63) - 1

# What may be tuned: option of `configure`, key. The plugin has the same defaults.
STORE: Final = "spark.sql.streaming.stateStore"
OPTION_KEYS: Final = {
    "max_file_bytes": f"{STORE}.holdfast.maxFileBytes",
    "compression": f"{STORE}.holdfast.compression",
    "max_memory_bytes": f"{STORE}.holdfast.maxMemoryBytes",
    "target_memory_bytes": f"{STORE}.holdfast.targetMemoryBytes",
    "local_cache_bytes": f"{STORE}.holdfast.localCacheBytes",
    "change_journal": f"{STORE}.holdfast.changeJournal",
}

#: What these options may be; the reference of settings shows it.
ALLOWED: Final = {
    "max_file_bytes": Allowed(
        "other", unit="bytes", least=MIN_MAX_FILE_BYTES, most=MAX_MAX_FILE_BYTES
    ),
    "compression": Allowed(
        "other", note=" or ".join(f"`{name}`" for name in get_args(Compression))
    ),
    "max_memory_bytes": Allowed("other", unit="bytes", least=MIN_MEMORY_BYTES, optional=True),
    "target_memory_bytes": Allowed(
        "other", unit="bytes", least=MIN_MEMORY_BYTES, note=f'`"{AUTO}"`, 0, or 1 MiB or more'
    ),
    "local_cache_bytes": Allowed("other", unit="bytes", least=0),
    "change_journal": Allowed("flag"),
}

#: What every query needs; Spark reads these when the query starts.
OF_QUERIES: Final = {
    f"{STORE}.providerClass": "io.holdfast.spark.HoldfastStateStoreProvider",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "io.holdfast.spark.HoldfastCheckpointFileManager"
    ),
    f"{STORE}.checkpointFormatVersion": "2",
}


def spark_conf(
    *,
    max_file_bytes: int | str = DEFAULT_MAX_FILE_BYTES,
    compression: Compression = "lz4",
    max_memory_bytes: int | str | None = None,
    target_memory_bytes: int | str = AUTO,
    local_cache_bytes: int | str = DEFAULT_LOCAL_CACHE_BYTES,
    change_journal: bool = False,
    spark: str | None = None,
) -> dict[str, str]:
    """Return the Spark settings of Holdfast, for ``spark-defaults.conf`` or ``--conf``.

    Parameters
    ----------
    max_file_bytes : int or str, default 32 MiB
        Size at which a physical file is sealed and the next one is begun, in bytes or in Spark's
        notation (``"64m"`` is 64 MiB). A soft bound: the segment that crosses it is still written
        whole. From 4 KiB to 1 TiB.
    compression : {"lz4", "none"}, default "lz4"
        How payloads are compressed on disk. Every build reads both.
    max_memory_bytes : int or str, optional
        Limit on the native memory that the state of one executor takes, 1 MiB or more, in bytes or
        in Spark's notation. State may be larger: what batches do not touch leaves memory once a
        run holds it. A task that needs more fails with an error that says so, instead of the
        whole executor being killed. Without it there is no limit. Native memory is not part of the
        JVM's heap: leave room for it in ``spark.executor.memoryOverhead``.
    target_memory_bytes : int or str, default "auto"
        Native memory of one executor from which on what batches do not touch leaves memory, 1 MiB
        or more, in bytes or in Spark's notation, or 0 to keep all state in memory. ``"auto"`` is
        three quarters of `max_memory_bytes`; without that a share of what the executor has beside
        its heap: half of ``spark.executor.memoryOverhead`` on YARN and Kubernetes, half of what
        any other container leaves, a quarter of what a machine leaves, and 128 MiB at least.
    local_cache_bytes : int or str, default 1 GiB
        Local disk of one executor for what it wrote to and read from a checkpoint on HDFS or an
        object store, in bytes or in Spark's notation, 0 for none. In use from the start where
        `max_memory_bytes` or a size of `target_memory_bytes` is set, else once state has left
        memory; of several queries the largest holds. It lies in Spark's folder for local files
        (``spark.local.dir``), and goes when the executor ends, or once that disk is full.
    change_journal : bool, default False
        Record every put, append and removal of a batch beside what became of each key. Spark's
        ``readChangeFeed`` then shows them all, as with Spark's own providers: also a value that the
        same batch replaced. A batch that changes a key more than once, or changes lists, writes
        every operation a second time, and holds them in native memory until it commits.
    spark : str, optional
        Version of Spark that the settings are for, such as ``"4.0"``, where the driver runs another
        than the installed PySpark. See `plugin_jars`.

    Returns
    -------
    dict of str to str
        Settings by key. ``spark.jars``, ``spark.plugins`` and
        ``spark.sql.streaming.ui.enabledCustomMetricList`` are lists in Spark: where you have
        entries of your own, append these with a comma.

    Raises
    ------
    ValueError
        If an option has a value that is not allowed.
    RuntimeError
        If `spark` is not given, and Holdfast does not run on the installed PySpark.
    FileNotFoundError
        If a jar of the plugin is missing from this installation.

    See Also
    --------
    configure : sets the same on a session builder.

    Examples
    --------
    >>> conf = holdfast.spark_conf(max_file_bytes=64 * 1024 * 1024)
    >>> conf["spark.plugins"]
    'io.holdfast.spark.HoldfastPlugin'
    """
    file_bytes = _allowed_bytes(
        "max_file_bytes",
        max_file_bytes,
        "a number of bytes, or a size such as '64m', "
        f"from {MIN_MAX_FILE_BYTES} to {MAX_MAX_FILE_BYTES} bytes",
    )
    limit_bytes = 0
    if max_memory_bytes is not None:
        limit_bytes = _memory_bytes("max_memory_bytes", max_memory_bytes, "None")
    cache_bytes = _allowed_bytes(
        "local_cache_bytes",
        local_cache_bytes,
        "a number of bytes, or a size such as '10g', 0 or more",
    )
    require_one_of("compression", compression, get_args(Compression))
    require_bool("change_journal", change_journal)
    return {
        "spark.jars": ",".join(map(str, plugin_jars(spark=spark))),
        "spark.plugins": PLUGIN,
        **OF_QUERIES,
        UI_METRICS_KEY: ",".join(UI_METRICS),
        OPTION_KEYS["max_file_bytes"]: str(file_bytes),
        OPTION_KEYS["compression"]: compression,
        OPTION_KEYS["max_memory_bytes"]: str(limit_bytes),
        OPTION_KEYS["target_memory_bytes"]: _target(target_memory_bytes),
        OPTION_KEYS["local_cache_bytes"]: str(cache_bytes),
        OPTION_KEYS["change_journal"]: str(change_journal).lower(),
    }


def configure(
    builder: SparkSession.Builder,
    *,
    max_file_bytes: int | str | None = None,
    compression: Compression | None = None,
    max_memory_bytes: int | str | None = None,
    target_memory_bytes: int | str | None = None,
    local_cache_bytes: int | str | None = None,
    change_journal: bool | None = None,
) -> SparkSession.Builder:
    """Set everything Holdfast needs on a session builder.

    Nothing is overwritten silently. Entries that the builder already has in lists, such as
    ``spark.jars`` and ``spark.plugins``, stay; an option that is not given here leaves its key to
    the builder, to ``spark-defaults.conf`` and to ``--conf``; any other value for a key that
    Holdfast needs is refused. A builder does not know ``spark-defaults.conf`` and ``--conf``: what
    is set on it replaces what they say.

    Parameters
    ----------
    builder : pyspark.sql.SparkSession.Builder
        A builder whose session has not been created yet.
    max_file_bytes, compression, max_memory_bytes : optional
        As in `spark_conf`. What is given replaces what the builder has.
    target_memory_bytes, local_cache_bytes, change_journal : optional
        As in `spark_conf`. What is given replaces what the builder has.

    Returns
    -------
    pyspark.sql.SparkSession.Builder
        The same builder.

    Raises
    ------
    ValueError
        If an option has a value that is not allowed, or if the builder has a setting that Holdfast
        cannot work with, such as another state store provider. The builder is left as it was.
    FileNotFoundError
        If a jar of the plugin is missing from this installation.
    RuntimeError
        If Holdfast does not run on this version of PySpark; if Spark is running already
        without the plugin, because it would ignore these settings silently; or if the builder is
        one of Spark Connect, whose server must be configured instead.
    TypeError
        If it is a session instead of a builder.

    See Also
    --------
    check : whether a session that exists runs Holdfast.

    Examples
    --------
    >>> from pyspark.sql import SparkSession
    >>> spark = holdfast.configure(SparkSession.builder.appName("counts")).getOrCreate()
    """
    given: dict[str, Any] = {
        "max_file_bytes": max_file_bytes,
        "compression": compression,
        "max_memory_bytes": max_memory_bytes,
        "target_memory_bytes": target_memory_bytes,
        "local_cache_bytes": local_cache_bytes,
        "change_journal": change_journal,
    }
    given = {option: value for option, value in given.items() if value is not None}
    settings = spark_conf(**given)
    require_classic_builder(builder)
    # A builder has no public way to ask it for a setting, and one that was applied cannot be told
    # from a default afterwards.
    options: dict[str, Any] = builder._options
    require_plugin_if_running()
    # Left alone rather than set to their defaults, which would replace spark-defaults.conf.
    left_alone = {key for option, key in OPTION_KEYS.items() if option not in given}
    wanted = {key: value for key, value in settings.items() if key not in left_alone}
    for key in LIST_KEYS:
        wanted[key] = _appended(options.get(key), wanted[key])
    _require_no_contradiction(options, wanted)
    for key, value in wanted.items():
        builder.config(key, value)
    return builder


def check(session: SparkSession) -> None:
    """Check that stateful queries which a session starts keep their state in Holdfast.

    For sessions that others made: a notebook's, a managed service's, or a client's of Spark
    Connect. It looks at settings alone; nothing is started.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        A session, classic or of Spark Connect.

    Raises
    ------
    RuntimeError
        If they do not. The message has each setting that is missing, and where it has to be set.

    Examples
    --------
    >>> holdfast.check(spark)
    """
    plugins = session.conf.get("spark.plugins", None)
    lacking = [
        f"{key} is {_shown(found)} and has to be {value!r}"
        for key, value in OF_QUERIES.items()
        if (found := session.conf.get(key, None)) != value
    ]
    if not runs_plugin(plugins):
        raise RuntimeError(
            "this session does not run Holdfast, so its queries cannot keep their state in it: "
            + "; ".join(
                [f"spark.plugins is {_shown(plugins)} and has to contain {PLUGIN!r}", *lacking]
            )
            + ". Spark reads plugins and jars only at its start: put what `python -m holdfast "
            "conf` prints into the settings of the cluster, or of the Spark Connect server, and "
            "restart it"
        )
    if lacking:
        raise RuntimeError(
            "this session runs Holdfast, but its queries do not keep their state in it: "
            + "; ".join(lacking)
            + ". Set these with session.conf.set(...) before the query starts, or in the settings "
            "of the cluster"
        )


def _shown(value: str | None) -> str:
    return "not set" if value is None else repr(value)


def _require_no_contradiction(options: dict[str, Any], wanted: dict[str, str]) -> None:
    may_change = {*LIST_KEYS, *OPTION_KEYS.values()}
    for key, value in wanted.items():
        if key not in may_change and key in options and str(options[key]) != value:
            raise ValueError(
                f"the builder sets {key} to {options[key]}, but Holdfast needs {value}. Remove "
                "that setting from the builder, or do not configure this session for Holdfast"
            )


def _appended(present: object, added: str) -> str:
    """Append what a comma-separated list does not have yet."""
    entries = [part.strip() for part in str(present or "").split(",") if part.strip()]
    return ",".join(dict.fromkeys([*entries, *added.split(",")]))


def _target(size: int | str) -> str:
    """Return what the key of `target_memory_bytes` is set to."""
    if size == AUTO:
        return AUTO
    if _bytes(size) == 0:
        return "0"
    return str(_memory_bytes("target_memory_bytes", size, f"{AUTO!r}, 0"))


def _memory_bytes(option: str, size: int | str, otherwise: str) -> int:
    """Return an amount of memory in bytes; `otherwise` is what else is allowed."""
    return _allowed_bytes(
        option,
        size,
        f"{otherwise}, a number of bytes, or a size such as '8g', {MIN_MEMORY_BYTES} bytes or more",
    )


def _allowed_bytes(option: str, size: object, wanted: str) -> int:
    """Return a size in bytes that lies in the bounds of its option."""
    found, allowed = _bytes(size), ALLOWED[option]
    if found is None or not allowed.least <= found <= (allowed.most or _MAX_LONG):
        raise not_allowed(option, size, wanted)
    return found


def _bytes(size: object) -> int | None:
    """Return a size in bytes: a number of them, or Spark's notation. None where it is neither."""
    # bool is an int in Python, but True is not a size.
    if isinstance(size, int) and not isinstance(size, bool):
        return size
    found = _SIZE.fullmatch(size.strip().lower()) if isinstance(size, str) else None
    if found is None:
        return None
    return int(found["number"]) << _SHIFTS[found["unit"] or "b"]
