"""What `configure` and `spark_conf` set, keep and refuse."""

from __future__ import annotations

import inspect
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyspark
import pytest
from pyspark import SparkContext
from pyspark.sql import SparkSession

import holdfast
from holdfast import _jars, _spark
from holdfast._options import OPTIONS
from holdfast.cli import local_spark

STORE = "spark.sql.streaming.stateStore"
DEFAULT = f"{STORE}.holdfast.default"
PROVIDER = {f"{STORE}.providerClass": "io.holdfast.spark.HoldfastStateStoreProvider"}
UI_METRICS_KEY = "spark.sql.streaming.ui.enabledCustomMetricList"
TUNING = {
    f"{STORE}.holdfast.{name}"
    for name in (
        *("maxFileBytes", "compression"),
        *("maxMemoryBytes", "targetMemoryBytes", "localCacheBytes"),
        *("commitCopies", "changeJournal", "sparkFiles", "adopt", "isolateFailures"),
        *("rebalance", "isolationMaxRatio", "isolationMaxBytes", "isolationRerun"),
        *("badRows", "badRowsMax", "badRowsMaxRatio", "deadLetters"),
    )
}


@pytest.fixture
def builder() -> SparkSession.Builder:
    return SparkSession.Builder()


@pytest.fixture(autouse=True)
def no_spark_in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(SparkContext, "_jvm", None)
    monkeypatch.setattr(os, "environ", os.environ.copy())  # `configure` adds to it
    for name in (
        "MASTER",
        "PYSPARK_DRIVER_PYTHON",
        "PYSPARK_GATEWAY_PORT",
        "PYSPARK_PYTHON",
        "PYSPARK_SUBMIT_ARGS",
        "SPARK_CONF_DIR",
        "SPARK_API_MODE",
        "SPARK_CONNECT_MODE",
        "SPARK_CONNECT_MODE_ENABLED",
        "SPARK_REMOTE",
    ):
        monkeypatch.delenv(name, raising=False)


class FakeJvm:
    """As much of a py4j view as `configure` looks at: a class loader."""

    def __init__(self, *, has_plugin: bool) -> None:
        loader = SimpleNamespace(loadClass=self.load)
        thread = SimpleNamespace(getContextClassLoader=lambda: loader)
        self.has_plugin = has_plugin
        self.java = SimpleNamespace(
            lang=SimpleNamespace(Thread=SimpleNamespace(currentThread=lambda: thread))
        )

    def load(self, name: str) -> None:
        from py4j.protocol import Py4JJavaError

        if not self.has_plugin:
            # Made without __init__, which asks a living JVM for the stack trace.
            raise Py4JJavaError.__new__(Py4JJavaError)


def active_context(plugins: str | None) -> SimpleNamespace:
    held = {} if plugins is None else {"spark.plugins": plugins}
    return SimpleNamespace(getConf=lambda: held)


def jars() -> str:
    return ",".join(map(str, holdfast.plugin_jars()))


def needed() -> dict[str, str]:
    """Settings that Holdfast cannot do without, on a builder."""
    conf = {key: value for key, value in holdfast.spark_conf().items() if key not in TUNING}
    return {**conf, DEFAULT: "always"}


def test_spark_conf_holds_every_setting_as_text() -> None:
    assert holdfast.spark_conf() == {
        "spark.jars": jars(),
        "spark.plugins": "io.holdfast.spark.HoldfastPlugin",
        DEFAULT: "true",
        "spark.sql.streaming.checkpointFileManagerClass": (
            "io.holdfast.spark.HoldfastCheckpointFileManager"
        ),
        f"{STORE}.checkpointFormatVersion": "2",
        UI_METRICS_KEY: (
            "holdfastFilesCreated,holdfastSegments,holdfastStoredBytes,holdfastPinnedBytes,"
            "holdfastLoads,holdfastAppendMs,holdfastSealMs"
        ),
        f"{STORE}.holdfast.maxFileBytes": "33554432",
        f"{STORE}.holdfast.compression": "lz4",
        f"{STORE}.holdfast.maxMemoryBytes": "0",
        f"{STORE}.holdfast.targetMemoryBytes": "auto",
        f"{STORE}.holdfast.localCacheBytes": "1073741824",
        f"{STORE}.holdfast.commitCopies": "1",
        f"{STORE}.holdfast.changeJournal": "false",
        f"{STORE}.holdfast.sparkFiles": "true",
        f"{STORE}.holdfast.rebalance": "auto",
        f"{STORE}.holdfast.adopt": "false",
        f"{STORE}.holdfast.isolateFailures": "false",
        f"{STORE}.holdfast.isolationMaxRatio": "0.3",
        f"{STORE}.holdfast.isolationMaxBytes": "1073741824",
        f"{STORE}.holdfast.isolationRerun": "fail",
        f"{STORE}.holdfast.badRows": "fail",
        f"{STORE}.holdfast.badRowsMax": "10000",
        f"{STORE}.holdfast.badRowsMaxRatio": "0.01",
        f"{STORE}.holdfast.deadLetters": "none",
    }


@pytest.mark.parametrize("minor", ["4.0", "4.1", "4.2"])
def test_an_older_spark_without_state_in_real_time_mode_gets_the_provider(minor: str) -> None:
    conf = holdfast.spark_conf(spark=minor)
    newest = {key: value for key, value in holdfast.spark_conf().items() if key != DEFAULT}
    assert conf == {**newest, **PROVIDER, "spark.jars": conf["spark.jars"]}


def test_options_reach_their_keys() -> None:
    conf = holdfast.spark_conf(
        max_file_bytes=8192,
        compression="none",
        max_memory_bytes=1 << 30,
        target_memory_bytes=1 << 20,
        local_cache_bytes="10g",
        commit_copies=0,
        change_journal=True,
        spark_files=False,
        adopt=True,
        isolate_failures=True,
        isolation_max_ratio=1,
        isolation_max_bytes="1m",
        isolation_rerun="at-least-once",
        rebalance="off",
        bad_rows="dead-letter",
        bad_rows_max=5,
        bad_rows_max_ratio=0.5,
        dead_letters=Path("/Dead/letters"),
    )
    assert conf[f"{STORE}.holdfast.maxFileBytes"] == "8192"
    assert conf[f"{STORE}.holdfast.maxMemoryBytes"] == "1073741824"
    assert conf[f"{STORE}.holdfast.targetMemoryBytes"] == "1048576"
    assert conf[f"{STORE}.holdfast.localCacheBytes"] == str(10 << 30)
    assert conf[f"{STORE}.holdfast.commitCopies"] == "0"
    assert conf[f"{STORE}.holdfast.compression"] == "none"
    assert conf[f"{STORE}.holdfast.changeJournal"] == "true"
    assert conf[f"{STORE}.holdfast.sparkFiles"] == "false"
    assert conf[f"{STORE}.holdfast.adopt"] == "true"
    assert conf[f"{STORE}.holdfast.isolateFailures"] == "true"
    assert conf[f"{STORE}.holdfast.rebalance"] == "off"
    assert conf[f"{STORE}.holdfast.isolationMaxRatio"] == "1.0"
    assert conf[f"{STORE}.holdfast.isolationMaxBytes"] == str(1 << 20)
    assert conf[f"{STORE}.holdfast.isolationRerun"] == "at-least-once"
    assert conf[f"{STORE}.holdfast.badRows"] == "dead-letter"
    assert conf[f"{STORE}.holdfast.badRowsMax"] == "5"
    assert conf[f"{STORE}.holdfast.badRowsMaxRatio"] == "0.5"
    assert conf[f"{STORE}.holdfast.deadLetters"] == "/Dead/letters"


@pytest.mark.parametrize(
    ("size", "bytes"),
    [
        ("8192", 8192),
        ("8192b", 8192),
        ("64k", 64 << 10),
        ("64m", 64 << 20),
        ("64MB", 64 << 20),
        (" 5g ", 5 << 30),
        ("1tb", 1 << 40),
    ],
)
def test_sizes_in_the_notation_of_spark_are_accepted(size: str, bytes: int) -> None:
    assert holdfast.spark_conf(max_file_bytes=size)[f"{STORE}.holdfast.maxFileBytes"] == str(bytes)
    memory = holdfast.spark_conf(max_memory_bytes="1g")[f"{STORE}.holdfast.maxMemoryBytes"]
    assert memory == str(1 << 30)


def test_configure_returns_the_same_builder_with_everything_set(
    builder: SparkSession.Builder,
) -> None:
    given = {
        "max_file_bytes": 8192,
        "compression": "none",
        "max_memory_bytes": 1 << 30,
        "target_memory_bytes": 1 << 29,
        "local_cache_bytes": 0,
        "commit_copies": 0,
        "change_journal": True,
        "spark_files": False,
        "adopt": True,
        "isolate_failures": True,
        "isolation_max_ratio": 0.5,
        "isolation_max_bytes": 1,
        "isolation_rerun": "fail",
        "rebalance": "off",
        "bad_rows": "dead-letter",
        "bad_rows_max": 1,
        "bad_rows_max_ratio": 1,
        "dead_letters": "s3a://bucket/dead",
    }
    assert holdfast.configure(builder, **given) is builder  # type: ignore[arg-type]
    conf = holdfast.spark_conf(**given)  # type: ignore[arg-type]
    assert builder._options == {**conf, DEFAULT: "always"}
    # The builder may have the settings that `spark_conf` returns.
    other = SparkSession.Builder().config(map=conf)
    assert holdfast.configure(other)._options == builder._options


def test_configure_leaves_what_is_not_given_to_spark_defaults(
    builder: SparkSession.Builder,
) -> None:
    assert holdfast.configure(builder)._options == needed()


@pytest.mark.parametrize("key", sorted(TUNING))
def test_a_tuning_key_set_on_the_builder_stays(builder: SparkSession.Builder, key: str) -> None:
    holdfast.configure(builder.config(key, "the user's"))
    assert builder._options == {**needed(), key: "the user's"}


def test_an_option_that_is_given_replaces_what_the_builder_has(
    builder: SparkSession.Builder,
) -> None:
    builder.config(f"{STORE}.holdfast.compression", "none")
    holdfast.configure(builder, compression="lz4")
    assert builder._options[f"{STORE}.holdfast.compression"] == "lz4"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (f"{STORE}.providerClass", "com.example.Provider"),
        (f"{STORE}.checkpointFormatVersion", 1),
        ("spark.sql.streaming.checkpointFileManagerClass", "com.example.FileManager"),
    ],
)
def test_a_setting_that_contradicts_is_refused_and_the_builder_left_as_it_was(
    builder: SparkSession.Builder, key: str, value: object
) -> None:
    builder.config(key, value)
    wanted = {**needed(), **PROVIDER}[key]
    with pytest.raises(ValueError, match=f"{key} to {value}, but Holdfast needs {wanted}"):
        holdfast.configure(builder)
    assert builder._options == {key: str(value)}


def test_a_setting_that_agrees_is_accepted(builder: SparkSession.Builder) -> None:
    holdfast.configure(builder.config(f"{STORE}.checkpointFormatVersion", 2))
    assert builder._options == needed()


def test_configure_appends_to_the_lists_of_the_builder(builder: SparkSession.Builder) -> None:
    builder.config("spark.jars", "/a.jar, /b.jar").config("spark.plugins", "com.example.Other")
    builder.config(UI_METRICS_KEY, "rocksdbGetCount,holdfastLoads")
    holdfast.configure(builder)
    assert builder._options["spark.jars"] == f"/a.jar,/b.jar,{jars()}"
    assert builder._options["spark.plugins"] == f"com.example.Other,{_spark.PLUGIN}"
    # The metric that the builder has is not there twice.
    assert builder._options[UI_METRICS_KEY] == (
        "rocksdbGetCount,holdfastLoads,holdfastFilesCreated,holdfastSegments,holdfastStoredBytes,"
        "holdfastPinnedBytes,holdfastAppendMs,holdfastSealMs"
    )


def test_configure_twice_doubles_nothing_and_the_last_options_count(
    builder: SparkSession.Builder,
) -> None:
    holdfast.configure(builder, max_file_bytes=8192, compression="none")
    holdfast.configure(builder, max_file_bytes=16384)
    tuned = {f"{STORE}.holdfast.maxFileBytes": "16384", f"{STORE}.holdfast.compression": "none"}
    assert builder._options == {**needed(), **tuned}


@pytest.mark.parametrize(
    "value",
    [0, -1, 4095, (1 << 40) + 1, True, 1.5, "4095", "2t", "2 g", "1x", "-1k", "1.5g", ""],
)
def test_a_wrong_file_size_is_refused_with_option_value_and_range(value: object) -> None:
    with pytest.raises(ValueError, match=r"max_file_bytes=.* from 4k to 1t") as caught:
        holdfast.spark_conf(max_file_bytes=value)  # type: ignore[arg-type]
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize(
    ("option", "more"),
    [("max_memory_bytes", ("auto",)), ("target_memory_bytes", ("none", False))],
)
def test_an_amount_of_memory_out_of_range_is_refused(option: str, more: tuple[object, ...]) -> None:
    for value in (1023, -1, True, 1.5e9, 1 << 63, "1k", "lots", *more):
        with pytest.raises(ValueError, match=rf"{option}=.* from 1m") as caught:
            holdfast.spark_conf(**{option: value})  # type: ignore[arg-type]
        assert repr(value) in str(caught.value)


@pytest.mark.parametrize("option", OPTIONS)
def test_none_is_an_option_that_is_not_given(option: str) -> None:
    assert holdfast.spark_conf(**{option: None}) == holdfast.spark_conf()  # type: ignore[arg-type]


@pytest.mark.parametrize(("given", "written"), [(0, "0"), ("0b", "0"), ("auto", "auto")])
def test_a_target_may_be_none_or_left_to_the_executor(given: int | str, written: str) -> None:
    conf = holdfast.spark_conf(target_memory_bytes=given)
    assert conf[f"{STORE}.holdfast.targetMemoryBytes"] == written


@pytest.mark.parametrize("value", [-1, True, 1.5, 1 << 63, "all", "-1k"])
def test_a_wrong_size_of_the_local_cache_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"local_cache_bytes=.* 0 or more") as caught:
        holdfast.spark_conf(local_cache_bytes=value)  # type: ignore[arg-type]
    assert repr(value) in str(caught.value)


@pytest.mark.parametrize("value", [0, 1, "true"])
def test_a_flag_that_is_neither_true_nor_false_is_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"change_journal=.* expected True or False"):
        holdfast.spark_conf(change_journal=value)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("option", "value", "expected"),
    [
        ("isolation_max_ratio", 0, "a number above 0 and at most 1"),
        ("isolation_max_ratio", 1.5, "a number above 0 and at most 1"),
        ("isolation_max_ratio", True, "a number above 0 and at most 1"),
        ("isolation_max_ratio", float("nan"), "a number above 0 and at most 1"),
        ("isolation_max_bytes", 0, "1 or more"),
        ("isolation_rerun", "twice", "one of fail, at-least-once"),
        ("bad_rows", "skip", "one of fail, dead-letter"),
        ("bad_rows_max", 0, "an integer of at least 1"),
        ("bad_rows_max_ratio", 0, "a number above 0 and at most 1"),
        ("dead_letters", " ", "a folder"),
    ],
)
def test_a_wrong_bound_of_isolation_is_refused(option: str, value: object, expected: str) -> None:
    with pytest.raises(ValueError, match=rf"{option}=.* {expected}"):
        holdfast.spark_conf(**{option: value})  # type: ignore[arg-type]


def test_bad_rows_need_a_folder_for_dead_letters() -> None:
    with pytest.raises(ValueError, match="needs dead_letters, a folder for the rows"):
        holdfast.spark_conf(bad_rows="dead-letter")


def test_a_wrong_compression_is_refused_with_the_allowed_ones(
    builder: SparkSession.Builder,
) -> None:
    with pytest.raises(ValueError, match=r"compression='zip' is not allowed.*lz4, none"):
        holdfast.configure(builder, compression="zip")  # type: ignore[arg-type]
    assert builder._options == {}


def test_a_missing_jar_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(_jars, "__file__", str(tmp_path / "_jars.py"))
    with pytest.raises(FileNotFoundError, match="pip install") as caught:
        holdfast.spark_conf()
    assert str(tmp_path / "_native" / "holdfast-spark-4.3_2.13-") in str(caught.value)


@pytest.mark.parametrize(
    ("version", "minor"),
    [
        ("4.0.1", "4.0"),
        ("4.0.2-amzn-0", "4.0"),
        ("4.1.4", "4.1"),
        ("4.2.1", "4.2"),
        ("4.3.0.dev0", "4.3"),
        # Newer than this release: the plugin looks at its start whether it fits.
        ("4.4.0", "4.3"),
        ("4.30.0", "4.3"),
    ],
)
def test_the_jar_is_that_of_the_installed_pyspark(
    builder: SparkSession.Builder, monkeypatch: pytest.MonkeyPatch, version: str, minor: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    first, _, native = holdfast.configure(builder)._options["spark.jars"].partition(",")
    assert Path(first).name == f"holdfast-spark-{minor}_2.13-{holdfast.__version__}.jar"
    assert Path(native).name == f"holdfast-native-{holdfast.__version__}.jar"


@pytest.mark.parametrize("version", ["3.5.7", "4.0.0", "4.0.0.dev2", "5.4.3"])
def test_another_spark_is_refused_with_its_version(
    builder: SparkSession.Builder, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    monkeypatch.setattr(pyspark, "__version__", version)
    with pytest.raises(RuntimeError, match=f"not (on|for) {version}"):
        holdfast.configure(builder)
    assert builder._options == {}


@pytest.mark.parametrize("plugins", [None, "", "com.example.Other"])
def test_an_active_session_without_the_plugin_is_refused(
    builder: SparkSession.Builder, monkeypatch: pytest.MonkeyPatch, plugins: str | None
) -> None:
    monkeypatch.setattr(SparkContext, "_active_spark_context", active_context(plugins))
    with pytest.raises(RuntimeError, match="active and was started without Holdfast"):
        holdfast.configure(builder)
    assert builder._options == {}


def test_an_active_session_with_the_plugin_is_accepted(
    builder: SparkSession.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = active_context(f"com.example.Other, {_spark.PLUGIN}")
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    assert holdfast.configure(builder)._options == needed()


def test_a_jvm_that_cannot_load_the_plugin_is_refused(
    builder: SparkSession.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SparkContext, "_jvm", FakeJvm(has_plugin=False))
    with pytest.raises(RuntimeError, match="--jars"):
        holdfast.configure(builder)
    assert builder._options == {}


def test_a_jvm_of_spark_submit_that_has_the_plugin_is_accepted(
    builder: SparkSession.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    def attach() -> None:
        monkeypatch.setattr(SparkContext, "_jvm", FakeJvm(has_plugin=True))

    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(SparkContext, "_ensure_initialized", attach)
    assert holdfast.configure(builder)._options == needed()


@pytest.mark.parametrize(
    ("options", "variables", "reason"),
    [
        ({}, {"SPARK_REMOTE": "sc://example:15002"}, "SPARK_REMOTE is sc://example:15002"),
        ({"spark.remote": "sc://example"}, {}, "spark.remote is sc://example"),
        # PySpark then starts a server of its own, with other plugins than the builder's.
        ({"spark.remote": "local[2]"}, {}, "spark.remote is local"),
        ({"spark.api.mode": "connect", "spark.master": "local"}, {}, "spark.api.mode is connect"),
        ({}, {"SPARK_API_MODE": "Connect"}, "spark.api.mode is connect"),
        ({}, {"SPARK_CONNECT_MODE_ENABLED": "1"}, "SPARK_CONNECT_MODE_ENABLED is set"),
        ({}, {"SPARK_CONNECT_MODE": "1"}, "it is the default"),
    ],
)
def test_a_builder_of_spark_connect_is_told_to_configure_its_server(
    builder: SparkSession.Builder,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    variables: dict[str, str],
    reason: str,
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    builder.config(map=options)
    with pytest.raises(RuntimeError, match=r"Start the server with.*holdfast conf") as caught:
        holdfast.configure(builder)
    assert reason in str(caught.value)
    assert builder._options == options


def test_a_builder_of_the_connect_package_is_told_to_configure_its_server() -> None:
    from pyspark.sql.connect.session import SparkSession as ConnectSession

    builder = ConnectSession.builder
    with pytest.raises(RuntimeError, match=r"it is a pyspark.sql.connect.SparkSession.Builder"):
        holdfast.configure(builder)  # type: ignore[arg-type]
    assert builder._options == {}


@pytest.mark.parametrize(
    ("options", "variables"),
    [
        ({"spark.api.mode": "classic"}, {"SPARK_CONNECT_MODE": "1"}),
        ({"spark.api.mode": "classic"}, {"SPARK_API_MODE": "connect"}),
        ({}, {"SPARK_CONNECT_MODE": "0"}),
    ],
)
def test_a_builder_of_a_classic_session_is_configured(
    builder: SparkSession.Builder,
    monkeypatch: pytest.MonkeyPatch,
    options: dict[str, str],
    variables: dict[str, str],
) -> None:
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    holdfast.configure(builder.config(map=options))  # type: ignore[arg-type]
    assert builder._options == {**options, **needed()}


@pytest.mark.parametrize("found", ["session", "class"])
def test_what_is_no_builder_is_refused(found: str) -> None:
    instead: Any = session_with({}) if found == "session" else SparkSession.Builder
    with pytest.raises(TypeError, match=r"takes a builder .*holdfast\.check\(session\)"):
        holdfast.configure(instead)


def session_with(settings: dict[str, str]) -> Any:
    """As much of a session as `check` asks: its settings."""
    return SimpleNamespace(conf=settings)


def test_a_session_with_all_settings_is_one_of_holdfast() -> None:
    more = {"spark.plugins": f"com.example.Other, {_spark.PLUGIN}"}
    holdfast.check(session_with({**needed(), **more}))


@pytest.mark.parametrize("plugins", [{}, {"spark.plugins": "com.example.Other"}])
def test_a_session_without_the_plugin_is_told_where_the_settings_belong(
    plugins: dict[str, str],
) -> None:
    session = session_with({**needed(), "spark.plugins": ""} | plugins)
    with pytest.raises(RuntimeError, match=r"does not run Holdfast.*spark\.plugins is .*restart"):
        holdfast.check(session)


@pytest.mark.parametrize("key", sorted(_spark.OF_QUERIES))
def test_a_session_whose_queries_use_other_state_stores_is_told_what_to_set(key: str) -> None:
    session = session_with({**needed(), key: "another", DEFAULT: "false"})
    with pytest.raises(RuntimeError, match=f"{key} is 'another' and has to be .*conf\\.set"):
        holdfast.check(session)
    del session.conf[key]
    with pytest.raises(RuntimeError, match=f"{key} is not set and has to be"):
        holdfast.check(session)


def test_a_session_that_sets_the_provider_or_none_runs_on_holdfast() -> None:
    for provider in ({}, PROVIDER):
        holdfast.check(session_with({**needed(), **provider}))
    other = session_with({**needed(), f"{STORE}.providerClass": "another"})
    with pytest.raises(RuntimeError, match="providerClass is 'another' and has to be"):
        holdfast.check(other)


def test_a_running_application_with_a_provider_of_its_own_gets_holdfasts(
    builder: SparkSession.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    context = active_context(_spark.PLUGIN)
    context.getConf()[f"{STORE}.providerClass"] = "another"
    monkeypatch.setattr(SparkContext, "_active_spark_context", context)
    assert holdfast.configure(builder)._options == {**needed(), **PROVIDER}


def test_a_session_lacks_all_settings_at_once() -> None:
    with pytest.raises(RuntimeError) as caught:
        holdfast.check(session_with({}))
    assert [
        key for key in ("spark.plugins", *_spark.OF_QUERIES) if key not in str(caught.value)
    ] == []


def test_a_jvm_of_spark_submit_is_not_started_for_a_builder_of_spark_connect(
    builder: SparkSession.Builder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PYSPARK_GATEWAY_PORT", "1")
    monkeypatch.setattr(SparkContext, "_ensure_initialized", lambda: pytest.fail("attached"))
    with pytest.raises(RuntimeError, match="session of Spark Connect"):
        holdfast.configure(builder.config("spark.remote", "sc://example"))


# In a process of its own: a JVM, once started, stays until its Python process ends.
REAL_SPARK = """
from pyspark.sql import SparkSession
import holdfast

def refusal():
    try:
        holdfast.configure(SparkSession.builder)
    except RuntimeError as error:
        return str(error)
    return "none"

options = {"spark.ui.enabled": "false", "spark.driver.host": "127.0.0.1"}
session = SparkSession.builder.master("local[1]").config(map=options).getOrCreate()
print("refusal:", refusal())
try:
    holdfast.check(session)
except RuntimeError as error:
    print("check:", error)
session.stop()
print("refusal:", refusal())
"""


@pytest.mark.spark
def test_a_real_session_without_the_plugin_is_refused_while_it_runs_and_after_it_stopped() -> None:
    done = subprocess.run(
        [sys.executable, "-c", REAL_SPARK], check=True, capture_output=True, text=True, timeout=200
    )
    lines = done.stdout.splitlines()
    running, stopped = (line for line in lines if line.startswith("refusal: "))
    (checked,) = (line for line in lines if line.startswith("check: "))
    assert "this session does not run Holdfast" in checked
    assert "spark.plugins is not set and has to contain" in checked
    assert f"{STORE}.providerClass is not set and has to be" in checked
    assert "active and was started without Holdfast" in running
    assert "does not have the Spark plugin of Holdfast on its class path" in stopped


#: Calls `configure` with a builder's options, variables, and text in spark-defaults.conf.
Configured = Callable[[dict[str, str], dict[str, str], str | None], None]


@pytest.fixture
def configured(
    builder: SparkSession.Builder, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Configured:
    def configure(
        options: dict[str, str], environment: dict[str, str], defaults: str | None
    ) -> None:
        for name, value in (environment | {"SPARK_CONF_DIR": str(tmp_path)}).items():
            monkeypatch.setenv(name, value)
        if defaults is not None:
            (tmp_path / "spark-defaults.conf").write_text(defaults)
        holdfast.configure(builder.config(map=options))

    return configure


@pytest.mark.parametrize(
    ("options", "environment", "defaults"),
    [
        ({"spark.master": "local[4]"}, {}, None),
        ({"spark.master": "local-cluster[2,1,1024]"}, {"MASTER": "yarn"}, "spark.master yarn"),
        ({}, {}, None),
        ({}, {}, "spark.driver.memory 4g"),
    ],
)
def test_workers_on_this_machine_get_the_interpreter_of_the_program(
    configured: Configured,
    options: dict[str, str],
    environment: dict[str, str],
    defaults: str | None,
) -> None:
    configured(options, environment, defaults)
    assert os.environ["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    ("options", "environment", "defaults"),
    [
        ({"spark.master": "yarn"}, {}, None),
        ({"spark.master": "spark://host:7077"}, {}, None),
        ({"spark.master": "local", "spark.pyspark.python": "/opt/python"}, {}, None),
        ({"spark.master": "local"}, {"PYSPARK_PYTHON": "/opt/python"}, None),
        ({"spark.master": "local"}, {"PYSPARK_DRIVER_PYTHON": "jupyter"}, None),
        ({}, {"MASTER": "yarn"}, None),
        ({}, {"PYSPARK_SUBMIT_ARGS": "--master yarn pyspark-shell"}, None),
        ({}, {}, "spark.master yarn"),
    ],
)
def test_an_interpreter_that_others_choose_is_left_to_them(
    configured: Configured,
    options: dict[str, str],
    environment: dict[str, str],
    defaults: str | None,
) -> None:
    configured(options, environment, defaults)
    assert os.environ.get("PYSPARK_PYTHON") == environment.get("PYSPARK_PYTHON")


# In a process of its own, whose PATH has another python3.
PYTHON_WORKER = """
from pyspark.sql import SparkSession, functions as F
import holdfast

session = holdfast.configure(SparkSession.builder.config("spark.ui.enabled", "false")).getOrCreate()
rows = session.range(3).select(F.udf(lambda number: number + 1, "long")("id")).collect()
print("rows:", [row[0] for row in rows])
"""


@pytest.mark.spark
def test_workers_run_although_the_first_python_of_the_path_fails(tmp_path: Path) -> None:
    (tmp_path / "python3").write_text("#!/bin/sh\nexit 3\n")
    (tmp_path / "python3").chmod(0o755)
    path = {"PATH": f"{tmp_path}{os.pathsep}{os.environ['PATH']}", "SPARK_LOCAL_IP": "127.0.0.1"}
    done = subprocess.run(
        [sys.executable, "-c", PYTHON_WORKER],
        env={**os.environ, **path},
        capture_output=True,
        text=True,
        timeout=200,
    )
    assert "rows: [1, 2, 3]" in done.stdout, done.stderr[-4000:]


def test_a_name_that_is_no_option_is_refused(builder: SparkSession.Builder) -> None:
    for call in (holdfast.spark_conf, lambda **given: holdfast.configure(builder, **given)):
        with pytest.raises(TypeError, match="there is no option 'max_files': expected max_file_"):
            call(max_files=3)
    assert builder._options == {}


def test_help_and_completion_have_every_option_with_its_default() -> None:
    for call, own in ((holdfast.spark_conf, "spark"), (holdfast.configure, "builder")):
        taken = inspect.signature(call).parameters
        assert {*taken} == {*OPTIONS, own}
        assert {taken[name].default for name in OPTIONS} == {None}
    for name, option in OPTIONS.items():
        shown = f"    {name} : {option.expected}, default {option.default}\n        "
        assert f"{shown}{option.meaning[:30]}" in str(holdfast.spark_conf.__doc__)


def test_sessions_of_commands_take_options_from_spark_defaults() -> None:
    needed = local_spark.needed()
    assert needed.keys() <= {*holdfast.spark_conf(), *PROVIDER}
    assert needed.keys() & TUNING == {f"{STORE}.holdfast.sparkFiles"}
    assert f"{STORE}.providerClass" in needed
