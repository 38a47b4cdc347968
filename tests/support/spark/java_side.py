"""The Java side of the tests: jars from Maven Central, checked, and helpers compiled by javac."""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
import sysconfig
import tempfile
import zipfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import IO, Any

import pyspark
import pytest
from py4j import java_gateway, protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from pyspark.sql import SparkSession

import holdfast
from support import TESTS

ROOT = TESTS.parent

# Last on the path: the package is the installed one, the build backend is in no package.
sys.path.append(str(ROOT / "python"))

from holdfast_build import maven  # noqa: E402

POMS = TESTS / "jars"
SOURCES = TESTS / "spark" / "java"
#: Files that tests compile once and use in every run.
BUILT = ROOT / "build" / "tests"
#: For a JVM that lives for some seconds or minutes: the second compiler takes half of its time, and
#: a collector with threads of its own a sixth of the rest.
QUICK_START = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
PYSPARK_JARS = Path(pyspark.__file__).parent / "jars"
#: Jars of the virtual environment, for servers, also in tests on another minor.
SERVER_JARS = Path(sysconfig.get_path("purelib")) / "pyspark" / "jars"


class JarsUnavailableError(RuntimeError):
    """Servers for the tests are missing and cannot be fetched."""


@contextmanager
def skipped_without_jars() -> Iterator[None]:
    """Skips the tests of a fixture, with the reason, without its jars."""
    try:
        yield
    except JarsUnavailableError as missing:
        pytest.skip(str(missing))


@cache
def jars(name: str) -> list[Path]:
    """The jars of ``tests/jars/<name>``, fetched once into ``build/jars``.

    Their checksums are recorded next to the pom, so the cache need not be trusted. Raises a
    JarsUnavailableError if they are missing and Maven cannot fetch them.
    """
    try:
        return maven.jars(POMS / name, ROOT / "build" / "jars" / name)
    except maven.MissingJarsError as error:
        raise JarsUnavailableError(str(error)) from None


def tool(name: str) -> str:
    """``java`` or ``javac``, of JAVA_HOME if it is set."""
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / name) if home else name


def hadoop_version() -> str:
    """The version of this PySpark's Hadoop client."""
    (jar,) = PYSPARK_JARS.glob("hadoop-client-api-*.jar")
    return jar.stem.removeprefix("hadoop-client-api-")


def s3a_jars() -> list[Path]:
    """Hadoop's S3A for the Hadoop client of this PySpark.

    The newest has all its jars in ``tests/jars/s3a``, and others only different ones.
    """
    own, version = jars("s3a"), hadoop_version()
    if any(jar.name == f"hadoop-aws-{version}.jar" for jar in own):
        return own
    shared = [jar for jar in own if not jar.name.startswith("hadoop-aws-")]
    return [*jars(f"s3a-{version}"), *shared]


def classpath(*more: Path, spark: Path = PYSPARK_JARS) -> str:
    """Class path of PySpark and Holdfast's jar, after ``more``."""
    return os.pathsep.join(map(str, [*more, *holdfast.plugin_jars(), spark / "*"]))


class JavaServer:
    """A server in a JVM that ends with its standard input, so not after this process.

    Attributes
    ----------
    process
        The JVM; its standard input is a pipe.
    log
        The file of its standard error.
    """

    process: subprocess.Popen[Any]
    log: IO[bytes]

    def close(self) -> None:
        """End the process."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)
        self.log.close()


@cache
def compiled(
    name: str = "*", *more: Path, spark: Path = PYSPARK_JARS, sources: Path = SOURCES
) -> Path:
    """The folder with ``tests/spark/java``, compiled against PySpark, Holdfast and ``more``.

    All of it needs the jars of ``hdfs``, one class by its ``name`` may not. The result is in
    ``build/tests``, by all its inputs.
    """
    files = sorted(sources.rglob(f"{name}.java"))
    path = classpath(*more, spark=spark)
    key = sha256(path.encode())
    for file in (*files, *holdfast.plugin_jars()):
        key.update(file.read_bytes())
    folder = BUILT / f"java-{key.hexdigest()[:16]}"
    BUILT.mkdir(parents=True, exist_ok=True)
    # One of several processes compiles; the others wait for it.
    with folder.with_suffix(".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.exists():
            with tempfile.TemporaryDirectory(dir=BUILT) as scratch:
                _compile(files, path, into=Path(scratch, "classes")).rename(folder)
    return folder


def _compile(sources: Sequence[Path], path: str, *, into: Path) -> Path:
    options = ["--release", "17", "-Xlint:all,-processing,-classfile,-path", "-Werror"]
    done = subprocess.run(
        [
            *(tool("javac"), *(f"-J{option}" for option in QUICK_START), *options),
            *("-cp", path, "-d", str(into), *map(str, sources)),
        ],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return into


def compile_jar(name: str, jar: Path) -> Path:
    """Puts one class of ``tests/spark/java``, compiled, into a jar; an old jar is replaced."""
    classes = compiled(name)
    with tempfile.TemporaryDirectory(dir=jar.parent) as scratch:
        written = Path(scratch, jar.name)
        with zipfile.ZipFile(written, "w") as archive:
            for path in sorted(classes.glob("*.class")):
                archive.write(path, path.name)
        return written.replace(jar)


@cache
def classes_of_this_process() -> tempfile.TemporaryDirectory[str]:
    """A folder until the end of the process: a JVM loads a class at its first use."""
    return tempfile.TemporaryDirectory(prefix="holdfast-classes-")


@cache
def instance(spark: SparkSession, name: str) -> Any:
    """An object of a class of ``tests/spark/java`` in the JVM of a session, whose tasks know it."""
    jar = compile_jar(name, Path(classes_of_this_process().name, f"{name}.jar"))
    spark.sql(f"ADD JAR '{jar}'")
    loader: Any = spark._jsparkSession.sharedState().jarClassLoader()
    return loader.loadClass(name).newInstance()


def check_conformance(path: str, folder: str, *settings: str) -> None:
    """Runs the storage conformance suite of the core on an empty folder, in a JVM of its own.

    ``settings`` are Hadoop's, as key=value.
    """
    # Built like the tests of the crates (TESTED_CRATES in the Makefile), to use their results.
    build = ["cargo", "build", "--profile", "test", "--workspace", "--exclude", "holdfast-py"]
    build += ["--lib", "--tests", "--features", "holdfast-jni/conformance", "--locked"]
    subprocess.run(build, cwd=ROOT, check=True, timeout=280)
    library = ROOT / "target" / "debug" / "libholdfast_jni.so"
    program = ["io.holdfast.spark.merged.StorageConformance", str(library), folder, *settings]
    done = subprocess.run(
        [tool("java"), *QUICK_START, "-cp", path, *program],
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    assert done.stdout.endswith("conforms\n"), done.stdout + done.stderr[-4000:]


@contextmanager
def gateway(path: str) -> Iterator[Any]:
    """A JVM with a class path, for tests without Spark, reached like a session's."""
    (py4j,) = PYSPARK_JARS.glob("py4j-*.jar")
    port = launch_gateway(
        jarpath=str(py4j),
        classpath=path,
        javaopts=list(QUICK_START),
        die_on_exit=True,
        java_path=tool("java"),
    )
    opened = JavaGateway(gateway_parameters=GatewayParameters(port=port, auto_convert=True))
    # After a session began, PySpark asks its JVM about all errors, also of this one.
    of_pyspark = java_gateway.get_return_value
    java_gateway.get_return_value = protocol.get_return_value
    try:
        yield opened.jvm
    finally:
        java_gateway.get_return_value = of_pyspark
        opened.shutdown()
