"""Checks of a builder or a session of Spark: classic or of Spark Connect, running or not."""

from __future__ import annotations

import os
import sys
from typing import Any, Final

PLUGIN: Final = "io.holdfast.spark.HoldfastPlugin"

#: Property of a thread in which Spark has the id of its query.
QUERY_ID: Final = "sql.streaming.queryId"

_CONNECT: Final = "pyspark.sql.connect"


def is_connect(found: object) -> bool:
    """Say whether this is a session, a builder or a DataFrame of Spark Connect."""
    return any(f"{kind.__module__}.".startswith(f"{_CONNECT}.") for kind in type(found).__mro__)


def runs_plugin(plugins: str | None) -> bool:
    """Say whether Holdfast's plugin is in a value of ``spark.plugins``."""
    return PLUGIN in [part.strip() for part in (plugins or "").split(",")]


def require_classic_builder(builder: Any) -> None:
    """Refuse a session, and a builder that makes a session of Spark Connect."""
    if is_connect(builder) and not hasattr(builder, "getOrCreate"):
        raise _client("this is a session of Spark Connect")
    if isinstance(builder, type) or not hasattr(builder, "getOrCreate"):
        raise TypeError(
            f"configure() takes a builder such as SparkSession.builder, not {builder!r}. Jars and "
            "plugins of a session that exists are fixed; holdfast.check(session) says whether it "
            "runs Holdfast"
        )
    if (why := _reason_for_connect(builder)) is not None:
        raise _client(f"this builder makes a session of Spark Connect ({why})")


def _reason_for_connect(builder: Any) -> str | None:
    """Return why `getOrCreate` would make a session of Spark Connect, else None."""
    options: dict[str, Any] = builder._options
    if remote := options.get("spark.remote"):
        return f"spark.remote is {remote}"
    if remote := os.environ.get("SPARK_REMOTE"):
        return f"SPARK_REMOTE is {remote}"
    if is_connect(builder):
        return f"it is a {_CONNECT}.SparkSession.Builder"
    if "SPARK_CONNECT_MODE_ENABLED" in os.environ:
        return "this process has such sessions: SPARK_CONNECT_MODE_ENABLED is set"
    mode = str(options.get("spark.api.mode", os.environ.get("SPARK_API_MODE", ""))).lower()
    if mode == "connect":
        return "spark.api.mode is connect"
    if mode == "classic":
        return None
    from pyspark.util import default_api_mode, is_remote_only

    if is_remote_only() or default_api_mode() == "connect":
        return "it is the default of the installed PySpark, or of SPARK_CONNECT_MODE"
    return None


def _client(what: str) -> RuntimeError:
    return RuntimeError(
        f"{what}, and a client cannot load jars and plugins into its server. Start the server with "
        "the settings that `python -m holdfast conf` prints, and create the session without "
        "configure(): its queries keep their state in Holdfast then, which "
        "holdfast.check(session) verifies. For a session of this process set spark.api.mode to "
        "classic, and no remote"
    )


def require_classic_session(session: object) -> None:
    """Raise NotImplementedError in a session of Spark Connect: no regional pipeline runs there."""
    if is_connect(session):
        raise NotImplementedError(
            "a regional pipeline does not run in a session of Spark Connect: its coordinator works "
            "beside the driver of Spark, which a client does not reach. Run the program where the "
            "driver runs, with spark-submit or with spark.api.mode set to classic and no remote. "
            "Queries without operators of Holdfast run on both"
        )


def require_jar(context: Any) -> None:
    """Raise RuntimeError if a JVM lacks Holdfast's jar: py4j would take classes for packages."""
    from py4j.java_gateway import JavaPackage

    if isinstance(context._jvm.io.holdfast.spark.HoldfastPlugin, JavaPackage):
        raise RuntimeError(
            "the Spark application does not have Holdfast's jar, and the class path of its JVM is "
            "fixed. Start a new process and build its first session with "
            "holdfast.configure(SparkSession.builder).getOrCreate(); under spark-submit pass "
            "`--jars $(python -m holdfast jar)` and, as --properties-file, the settings that "
            "`python -m holdfast conf` prints"
        )


def require_plugin_if_running() -> Any:
    """Return the settings of a running context; refuse one, or a JVM, that ignores settings."""
    from pyspark import SparkContext

    active = SparkContext._active_spark_context
    if active is not None:
        conf = active.getConf()
        if not runs_plugin(conf.get("spark.plugins", "")):
            raise RuntimeError(
                "a Spark session is active and was started without Holdfast; Spark reads "
                "spark.plugins and spark.jars only at its start, so these settings would be "
                "ignored. Call configure() before the first session, in a new process, or start "
                "with spark-submit and the settings that `python -m holdfast conf` prints. Where a "
                "service makes the session, put these settings into its cluster's"
            )
        return conf
    if "PYSPARK_GATEWAY_PORT" in os.environ:
        SparkContext._ensure_initialized()  # attaches to the JVM that spark-submit started
    jvm = SparkContext._jvm
    if jvm is not None and not _can_load(jvm, PLUGIN):
        raise RuntimeError(
            "a JVM is running already and does not have the Spark plugin of Holdfast on its class "
            "path, which is fixed when it starts. Call configure() before the first session, in a "
            "new process; under spark-submit pass `--jars $(python -m holdfast jar)`, or the "
            "settings that `python -m holdfast conf` prints as --properties-file"
        )
    return None


def _can_load(jvm: Any, name: str) -> bool:
    py4j_error: type[Exception] = sys.modules["py4j.protocol"].Py4JJavaError
    try:
        jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(name)
    except py4j_error:
        return False
    return True
