"""What cannot work is refused at `apply` or at the start, in a sentence that says what to do."""

from __future__ import annotations

import builtins
import re
import sys
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from py4j.java_gateway import JavaPackage

import holdfast as hf
from holdfast.regions.runners.spark import preflight
from support.regional.pipelines import COUNTED, RunningCount

PLUGIN = "io.holdfast.spark.HoldfastPlugin"


def writer(path: Path) -> Any:
    return (
        hf.regional(region_by="region")
        .apply(RunningCount(), schema=COUNTED, name="count")
        .write_parquet(path / "out")
    )


def test_a_schema_in_which_two_columns_have_one_name_is_refused() -> None:
    twice = pa.schema([("region", pa.string()), ("seen", pa.int64()), ("seen", pa.int64())])
    with pytest.raises(ValueError, match="each column once, and this one has 'seen' several times"):
        hf.regional(region_by="region").apply(RunningCount(), schema=twice)


def application(
    *,
    of_jar: Any = None,
    plugins: str = f"com.example.Other, {PLUGIN}",
    queries: tuple[str, ...] = (),
    master: str = "local[2]",
) -> Any:
    """A session, as far as it is asked; jobs run here."""

    class Rows:
        def __init__(self, rows: list[Any]) -> None:
            self.rows = rows

        def map(self, function: Any) -> Rows:
            return Rows([function(row) for row in self.rows])

        def collect(self) -> list[Any]:
            return self.rows

    spark = SimpleNamespace(HoldfastPlugin=of_jar)
    conf = {"spark.plugins": plugins}
    context = SimpleNamespace(
        _jvm=SimpleNamespace(io=SimpleNamespace(holdfast=SimpleNamespace(spark=spark))),
        getConf=lambda: conf,
        master=master,
        pythonExec=sys.executable,
        parallelize=lambda rows, _: Rows(rows),
    )
    active = [SimpleNamespace(name=name) for name in queries]
    return SimpleNamespace(sparkContext=context, streams=SimpleNamespace(active=active))


def refused(session: Any) -> str:
    with pytest.raises(RuntimeError) as raised:
        preflight.require_application(session, "pipeline")
    message = str(raised.value)
    assert "\n" not in message
    return message


def test_an_application_with_all_that_is_needed_passes() -> None:
    preflight.require_application(application(), "pipeline")


def test_without_the_jar_configure_is_named() -> None:
    package: Any = JavaPackage("io.holdfast.spark.HoldfastPlugin", None)
    message = refused(application(of_jar=package))
    assert "does not have Holdfast's jar" in message
    assert "--jars $(python -m holdfast jar)" in message
    assert "holdfast.configure(SparkSession.builder).getOrCreate()" in message


def test_without_the_plugin_configure_is_named() -> None:
    message = refused(application(plugins="com.example.Other"))
    assert "does not run Holdfast's plugin (spark.plugins='com.example.Other')" in message
    assert "holdfast.configure" in message


def test_a_name_in_use_is_refused() -> None:
    message = refused(application(queries=("pipeline",)))
    assert "'pipeline' is open already" in message
    assert "another name=..." in message


def test_packages_that_workers_lack_are_named(monkeypatch: pytest.MonkeyPatch) -> None:
    session = application(master="spark://host:7077")
    preflight.require_application(session, "pipeline")
    monkeypatch.setitem(sys.modules, "numpy", None)
    message = refused(session)
    lacking = r"Python workers \(.*\) cannot import numpy \(.*'holdfast-spark\[spark\]'"
    assert re.search(lacking, message)


@pytest.fixture(params=["no CuPy", "no driver", "no device"])
def lacking(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """What a machine has not that runs arrays on a device; returns what is said of it."""
    if request.param == "no CuPy":
        monkeypatch.setitem(sys.modules, "cupy", None)
        extras = r"'holdfast-spark\[cuda12\]' or 'holdfast-spark\[cuda13\]'"
        return rf"CuPy cannot be imported \(.*\): install {extras} there"

    class CUDARuntimeError(RuntimeError):
        pass

    def count() -> int:
        if request.param == "no driver":
            raise CUDARuntimeError("cudaErrorInsufficientDriver")
        return 0

    runtime = SimpleNamespace(CUDARuntimeError=CUDARuntimeError, getDeviceCount=count)
    cupy = SimpleNamespace(cuda=SimpleNamespace(runtime=runtime))
    monkeypatch.setitem(sys.modules, "cupy", cupy)
    why = r" \(cudaErrorInsufficientDriver\)" if request.param == "no driver" else ""
    return f"CuPy finds no CUDA device{why}: run this where there is one, or without gpu=True"


@pytest.mark.parametrize("master", ["local[2]", "spark://host:7077"])
def test_a_device_that_workers_lack_is_said_before_anything_starts(
    lacking: str, master: str
) -> None:
    session = application(master=master)
    preflight.require_application(session, "pipeline")
    with pytest.raises(RuntimeError, match=rf"^gpu=True: in Python workers \(.*\) {lacking}$"):
        preflight.require_application(session, "pipeline", gpu=True)


def test_a_device_that_is_not_there_is_said_before_anything_is_made(
    lacking: str, tmp_path: Path
) -> None:
    with pytest.raises(RuntimeError, match=f"^gpu=True: {lacking}$"):
        writer(tmp_path).open_local(tmp_path / "ckpt", gpu=True)
    assert not (tmp_path / "ckpt").exists()


def test_a_worker_without_holdfast_can_be_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import cloudpickle

    session = application(master="spark://host:7077")
    sent: list[bytes] = []
    parallelize = session.sparkContext.parallelize

    def sending(rows: list[Any], count: int) -> Any:
        made = parallelize(rows, count)
        real = made.map

        def mapped(function: Any) -> Any:
            sent.append(cloudpickle.dumps(function))
            return real(function)

        made.map = mapped
        return made

    session.sparkContext.parallelize = sending
    preflight.require_application(session, "pipeline")
    importing = builtins.__import__

    def without_holdfast(name: str, *arguments: Any, **options: Any) -> Any:
        if name.startswith("holdfast"):
            raise ModuleNotFoundError(f"No module named {name!r}")
        return importing(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", without_holdfast)
    assert callable(cloudpickle.loads(sent[0]))


@pytest.mark.parametrize(
    "trigger",
    [{"avialableNow": True}, {"continuous": "1 s"}, {"once": True, "processingTime": "1 s"}],
)
def test_a_trigger_that_is_none_is_refused(trigger: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=r"trigger=.* is not allowed: .*availableNow"):
        preflight.require_trigger(trigger)


def test_an_option_that_is_misspelt_is_refused_with_what_may_be_meant(tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="no option 'max_failure_ration': did you mean 'max_fail"):
        writer(tmp_path).open_local(tmp_path / "ckpt", max_failure_ration=0.5)
    with pytest.raises(TypeError, match="no option 'colour': expected name, max_failure_ratio"):
        writer(tmp_path).open_local(tmp_path / "ckpt", colour="red")
    assert not (tmp_path / "ckpt").exists()


@pytest.mark.parametrize("aligned", [timedelta(seconds=30), timedelta(minutes=1)])
def test_an_option_above_its_partner_is_refused(tmp_path: Path, aligned: timedelta) -> None:
    with pytest.raises(ValueError, match=r"aligned_timeout=.* less than region_timeout="):
        writer(tmp_path).open_local(
            tmp_path / "ckpt", aligned_timeout=aligned, region_timeout=timedelta(seconds=30)
        )
    assert not (tmp_path / "ckpt").exists()


def test_the_checkpoint_of_an_ordinary_query_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ckpt" / "offsets").mkdir(parents=True)
    (tmp_path / "ckpt" / "metadata").write_text('{"id":"8d2f"}')
    with pytest.raises(FileExistsError, match="of an ordinary streaming query: give the regional"):
        writer(tmp_path).open_local(tmp_path / "ckpt")
    assert sorted(path.name for path in (tmp_path / "ckpt").iterdir()) == ["metadata", "offsets"]


def test_a_file_in_the_place_of_the_checkpoint_is_refused(tmp_path: Path) -> None:
    (tmp_path / "ckpt").touch()
    with pytest.raises(NotADirectoryError, match="ckpt is a file: name a folder"):
        writer(tmp_path).open_local(tmp_path / "ckpt")


def test_columns_to_route_by_must_be_there() -> None:
    begun = hf.regional(region_by="region").apply(RunningCount(), schema=COUNTED, name="count")
    with pytest.raises(ValueError, match=r"route_by of operator 'more' names kee, but .* of_key"):
        begun.apply(RunningCount(), schema=COUNTED, name="more", parallelism=2, route_by="kee")


@pytest.mark.parametrize("method", ["start", "open_local"])
def test_a_pipeline_without_a_sink_names_those_that_there_are(method: str, tmp_path: Path) -> None:
    pipeline = hf.regional(region_by="region").apply(RunningCount(), schema=COUNTED)
    with pytest.raises(ValueError, match=r"no sink: call write_parquet\(.*foreach_batch") as raised:
        getattr(pipeline, method)(tmp_path / "ckpt", name="count")
    named = re.findall(r"(\w+)\(\.\.\.\)", str(raised.value))
    sinks = {name for name in dir(pipeline) if name.startswith(("write_", "foreach"))}
    assert set(named) == sinks
    with pipeline.write_parquet(tmp_path / "out").open_local(tmp_path / "ckpt", name="count"):
        pass
