"""Spark settings that make a Structured Streaming query keep its state in Holdfast."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Unpack

from holdfast._jars import plugin_jars, wanted_minor
from holdfast._options import OPTIONS, STORE, StoreOptions, takes_options, written
from holdfast._sessions import (
    PLUGIN,
    require_classic_builder,
    require_plugin_if_running,
    runs_plugin,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

#: Metrics of Holdfast with a graph on Spark's Structured Streaming page. The progress has more.
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

# Spark reads these as comma-separated lists, so entries of others are kept.
LIST_KEYS: Final = ("spark.jars", "spark.plugins", UI_METRICS_KEY)

PROVIDER_KEY: Final = f"{STORE}.providerClass"
#: Says that Holdfast serves queries whose session sets no provider.
DEFAULT_KEY: Final = f"{STORE}.holdfast.default"
#: Settings that every query needs. Spark reads them when the query starts.
OF_QUERIES: Final = {
    PROVIDER_KEY: "io.holdfast.spark.HoldfastStateStoreProvider",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "io.holdfast.spark.HoldfastCheckpointFileManager"
    ),
    f"{STORE}.checkpointFormatVersion": "2",
}
#: Spark plans queries without state while they run, from 4.1 on, unless this is off: then no rule
#: sees a whole stage of a source.
OF_BAD_ROWS: Final = {"spark.sql.adaptive.streaming.stateless.enabled": "false"}


def of_queries(spark: str | None) -> dict[str, str]:
    """Return the settings that queries need on a version of Spark."""
    if wanted_minor(spark) in ("4.0", "4.1", "4.2"):
        return OF_QUERIES
    # Real-Time Mode refuses a session that sets another provider than RocksDB.
    others = {key: value for key, value in OF_QUERIES.items() if key != PROVIDER_KEY}
    return {DEFAULT_KEY: "true", **others}


def lacking(get: Callable[[str], str | None]) -> dict[str, str | None]:
    """Return what settings, which `get` finds, lack so that queries run on Holdfast: key, value."""
    found = {key: get(key) for key in OF_QUERIES}
    if found[PROVIDER_KEY] is None and get(DEFAULT_KEY) in ("true", "always"):
        del found[PROVIDER_KEY]
    return {key: value for key, value in found.items() if value != OF_QUERIES[key]}


@takes_options
def spark_conf(*, spark: str | None = None, **options: Unpack[StoreOptions]) -> dict[str, str]:
    """Return the Spark settings of Holdfast, for ``spark-defaults.conf`` or ``--conf``.

    Parameters
    ----------
    options
    spark : str, optional
        Version of Spark that the settings are for, such as ``"4.0"``, if the driver does not run
        the installed PySpark. See `plugin_jars`.

    Returns
    -------
    dict of str to str
        Settings by key. ``spark.jars``, ``spark.plugins`` and
        ``spark.sql.streaming.ui.enabledCustomMetricList`` are lists in Spark. If you have entries
        of your own, append these with a comma.

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
    tuned = written(options)
    return {
        "spark.jars": ",".join(map(str, plugin_jars(spark=spark))),
        "spark.plugins": PLUGIN,
        **of_queries(spark),
        UI_METRICS_KEY: ",".join(UI_METRICS),
        **tuned,
        **(OF_BAD_ROWS if options.get("bad_rows") == "dead-letter" else {}),
    }


@takes_options
def configure(
    builder: SparkSession.Builder, **options: Unpack[StoreOptions]
) -> SparkSession.Builder:
    """Set everything Holdfast needs on a session builder.

    Nothing is overwritten silently. Entries in the builder's lists, such as ``spark.jars`` and
    ``spark.plugins``, are kept. An option that is not given here leaves its key to the builder, to
    ``spark-defaults.conf`` and to ``--conf``. Another value for a key that Holdfast needs is
    refused. A builder does not know ``spark-defaults.conf`` and ``--conf``: its settings replace
    theirs.

    If Spark will run on this machine alone, ``PYSPARK_PYTHON`` is set to the interpreter of this
    process, unless that or ``PYSPARK_DRIVER_PYTHON`` is set. Workers run it, not the one on PATH.

    Parameters
    ----------
    builder : pyspark.sql.SparkSession.Builder
        A builder whose session has not been created yet.
    **options
        Options of `spark_conf`. They replace settings of the builder.

    Returns
    -------
    pyspark.sql.SparkSession.Builder
        The same builder.

    Raises
    ------
    ValueError
        If an option has a value that is not allowed, or the builder a setting that Holdfast
        cannot work with, such as another state store provider. The builder is left unchanged.
    FileNotFoundError
        If a jar of the plugin is missing from this installation.
    RuntimeError
        If Holdfast does not run on this version of PySpark; if Spark runs already without the
        plugin, because it would ignore these settings silently; or if the builder is one of
        Spark Connect, whose server must be configured instead.
    TypeError
        If `builder` is a session instead of a builder.

    See Also
    --------
    check : whether a session that exists runs Holdfast.

    Examples
    --------
    >>> from pyspark.sql import SparkSession
    >>> spark = holdfast.configure(SparkSession.builder.appName("counts")).getOrCreate()
    """
    given: Any = {name: value for name, value in options.items() if value is not None}
    settings = spark_conf(**given)
    require_classic_builder(builder)
    # A builder has no public way to ask for a setting. An applied setting looks like a default.
    held: dict[str, Any] = builder._options
    running = require_plugin_if_running()
    if DEFAULT_KEY in settings:
        # A builder's settings replace those of its application, so a provider that is named there.
        settings[DEFAULT_KEY] = "always"
    if running is not None and running.get(PROVIDER_KEY) is not None:
        settings[PROVIDER_KEY] = OF_QUERIES[PROVIDER_KEY]
    # Defaults would replace spark-defaults.conf.
    left_alone = {option.key for name, option in OPTIONS.items() if name not in given}
    wanted = {key: value for key, value in settings.items() if key not in left_alone}
    for key in LIST_KEYS:
        wanted[key] = _appended(held.get(key), wanted[key])
    _require_no_contradiction(held, OF_QUERIES | wanted)
    for key, value in wanted.items():
        builder.config(key, value)
    if running is None and sys.executable and _lacks_python(held):
        # PySpark reads it when a context starts, and not spark.pyspark.python.
        os.environ["PYSPARK_PYTHON"] = sys.executable
    return builder


def check(session: SparkSession) -> None:
    """Check that stateful queries which a session starts keep their state in Holdfast.

    For sessions that others made, such as a notebook's or a client's of Spark Connect. It only
    reads settings.

    Parameters
    ----------
    session : pyspark.sql.SparkSession
        A session, classic or of Spark Connect.

    Raises
    ------
    RuntimeError
        If they do not; the message has each setting that is missing, and where it has to be set.

    Examples
    --------
    >>> holdfast.check(spark)
    """
    plugins = session.conf.get("spark.plugins", None)
    lacks = [
        f"{key} is {_shown(found)} and has to be {OF_QUERIES[key]!r}"
        for key, found in lacking(lambda key: session.conf.get(key, None)).items()
    ]
    if not runs_plugin(plugins):
        raise RuntimeError(
            "this session does not run Holdfast, so its queries cannot keep their state in it: "
            + "; ".join(
                [f"spark.plugins is {_shown(plugins)} and has to contain {PLUGIN!r}", *lacks]
            )
            + ". Spark reads plugins and jars only at its start: put what `python -m holdfast "
            "conf` prints into the settings of the cluster, or of the Spark Connect server, and "
            "restart it"
        )
    if lacks:
        raise RuntimeError(
            "this session runs Holdfast, but its queries do not keep their state in it: "
            + "; ".join(lacks)
            + ". Set these with session.conf.set(...) before the query starts, or in the settings "
            "of the cluster"
        )


def _lacks_python(held: dict[str, Any]) -> bool:
    """Say whether Python workers will run on this machine, with an interpreter nobody has named."""
    is_named = "PYSPARK_PYTHON" in os.environ or "PYSPARK_DRIVER_PYTHON" in os.environ
    if is_named or "spark.pyspark.python" in held:
        return False
    if "spark.master" in held:
        return str(held["spark.master"]).startswith("local")
    is_submitted = "PYSPARK_GATEWAY_PORT" in os.environ or "PYSPARK_SUBMIT_ARGS" in os.environ
    if is_submitted or "MASTER" in os.environ:
        return False
    from pyspark.find_spark_home import _find_spark_home

    folder = os.environ.get("SPARK_CONF_DIR") or Path(_find_spark_home(), "conf")
    defaults = Path(folder, "spark-defaults.conf")
    # Without any master Spark takes local[*].
    return not (defaults.is_file() and "spark.master" in defaults.read_text(errors="replace"))


def _shown(value: str | None) -> str:
    return "not set" if value is None else repr(value)


def _require_no_contradiction(options: dict[str, Any], wanted: dict[str, str]) -> None:
    may_change = {DEFAULT_KEY, *LIST_KEYS, *(option.key for option in OPTIONS.values())}
    for key, value in wanted.items():
        if key not in may_change and key in options and str(options[key]) != value:
            raise ValueError(
                f"the builder sets {key} to {options[key]}, but Holdfast needs {value}. Remove "
                "that setting from the builder, or do not configure this session for Holdfast"
            )


def _appended(present: object, added: str) -> str:
    """Append entries that a comma-separated list does not have yet."""
    entries = [part.strip() for part in str(present or "").split(",") if part.strip()]
    return ",".join(dict.fromkeys([*entries, *added.split(",")]))
