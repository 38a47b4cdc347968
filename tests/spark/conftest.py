"""Real Spark for the tests: one session per test process, crash jobs in processes of their own."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from pyspark import cloudpickle

from support.spark.class_archive import archive, ensure, java_options, quick_start
from support.spark.java_side import QUICK_START
from support.spark.minors import IS_NEWEST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from support.spark.faults import World
    from support.spark.mini_hdfs import MiniHdfs
    from support.spark.object_stores import S3Server
    from support.spark.standalone import StandaloneCluster

os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
# Tests on an older minor start few JVMs: writing the archive takes longer than it saves them.
CLASSES = archive() if IS_NEWEST else None
# For the applications that tests start, too.
for name, value in (
    quick_start(CLASSES) if CLASSES else java_options(" ".join(QUICK_START))
).items():
    os.environ.setdefault(name, value)


@pytest.fixture(scope="session", autouse=True)
def class_archive() -> None:
    """Spark's classes are archived before the first test starts Spark, or while it runs."""
    if CLASSES:
        ensure(CLASSES)


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A ``local[2]`` session with Holdfast; single queries may select Spark's providers."""
    from support.spark.queries import local_session

    session = local_session(tmp_path_factory.mktemp("warehouse"))
    yield session
    session.stop()


@pytest.fixture(scope="module", autouse=True)
def classes_travel() -> Iterator[None]:
    """Python workers do not find modules of ``support``: their classes travel as they are.

    Only for as long as tests on Spark run: a local pipeline, which copies its operators by
    pickling, would work with copies of their classes.
    """
    from support.regional import hooks, pipelines, restorable, split_files

    modules = (hooks, pipelines, restorable, split_files)
    for module in modules:
        cloudpickle.register_pickle_by_value(module)
    yield
    for module in modules:
        cloudpickle.unregister_pickle_by_value(module)


@pytest.fixture
def provider(spark: SparkSession) -> Iterator[Callable[[str], None]]:
    """Selects the state store provider of the queries started next; undone after the test."""
    from support.spark.queries import select_provider

    yield lambda name: select_provider(spark, name)
    select_provider(spark, "holdfast")


@pytest.fixture(scope="session")
def fault_points(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The library that stops processes at named points."""
    from support import preloadable
    from support.spark.faults import POINTS_SOURCE

    return preloadable(POINTS_SOURCE, tmp_path_factory.mktemp("points"))


@pytest.fixture(scope="session")
def helpers(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The compiled ``tests/spark/java``; on older minors what object stores need of it."""
    from support.spark.java_side import SERVER_JARS, compiled, jars, skipped_without_jars

    if not IS_NEWEST:
        classes = tmp_path_factory.mktemp("classes")
        for name in ("ObjectsFileSystem", "UntilInputEnds"):
            shutil.copytree(compiled(name), classes, dirs_exist_ok=True)
        return classes
    with skipped_without_jars():
        return compiled("*", *jars("hdfs"), spark=SERVER_JARS)


@contextmanager
def running_hdfs(folder: Path, data_nodes: int) -> Iterator[MiniHdfs]:
    from support.spark.java_side import skipped_without_jars
    from support.spark.mini_hdfs import MiniHdfs

    with skipped_without_jars():
        running = MiniHdfs(folder, data_nodes=data_nodes)
    yield running
    running.close()


@pytest.fixture(scope="session")
def shared_hdfs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MiniHdfs]:
    """HDFS with one data node; every test has folders of its own."""
    with running_hdfs(tmp_path_factory.mktemp("hdfs"), 1) as running:
        yield running


@pytest.fixture(scope="module")
def hdfs(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MiniHdfs]:
    """HDFS with as many data nodes as the module says in ``DATA_NODES``, or the shared one."""
    nodes = getattr(request.module, "DATA_NODES", None)
    if nodes is None:
        yield request.getfixturevalue("shared_hdfs")
        return
    with running_hdfs(tmp_path_factory.mktemp("hdfs"), nodes) as running:
        yield running


@pytest.fixture(scope="session")
def s3(helpers: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    """A server of the S3 protocol; every test has buckets of its own."""
    from support.spark.java_side import skipped_without_jars
    from support.spark.object_stores import S3Server

    with skipped_without_jars():
        running = S3Server(tmp_path_factory.mktemp("s3"), helpers)
    yield running
    running.close()


@pytest.fixture
def world(tmp_path: Path, fault_points: Path) -> Iterator[World]:
    """An empty checkpoint for fault jobs; what still runs in the end is killed."""
    from support.spark.faults import World

    world = World(tmp_path / "world", fault_points)
    yield world
    world.end()


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[StandaloneCluster]:
    """A standalone cluster of two workers."""
    from support.spark.standalone import StandaloneCluster

    (tmp_path / "cluster").mkdir()
    running = StandaloneCluster(tmp_path / "cluster", workers=2)
    yield running
    running.close()


@pytest.fixture
def hdfs_world(hdfs: MiniHdfs, world: World, spark: SparkSession, tmp_path: Path) -> World:
    """An empty checkpoint for fault jobs on HDFS."""
    from support.spark.object_stores import Store
    from support.spark.remote_folder import RemotePath

    uri = f"{hdfs.uri}/{tmp_path.name}/checkpoint"
    world.move_to(Store(uri, RemotePath(uri, spark), {}, {}))
    return world


@pytest.fixture(params=["objects", "s3a"])
def object_world(
    request: pytest.FixtureRequest, world: World, helpers: Path, tmp_path: Path
) -> Iterator[World]:
    """An empty checkpoint for fault jobs on an object store, the stand-in or S3."""
    from support.spark.java_side import skipped_without_jars
    from support.spark.object_stores import S3Server, stand_in

    if request.param == "objects":
        world.move_to(stand_in(helpers, tmp_path / "checkpoint"))
        yield world
        return
    (tmp_path / "s3").mkdir()
    with skipped_without_jars():
        server = S3Server(tmp_path / "s3", helpers, world.environment)
    world.move_to(server.store("bucket"))
    yield world
    server.close()
