"""The Java that Spark starts, and a JVM with Spark's classes and Holdfast's."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import Any, BinaryIO, Final

from holdfast._jars import plugin_jars

#: Spark 4 needs it, and so do the classes of the plugin.
JAVA_MIN: Final = 17

_LAST_LINES: Final = 5

_INSTALL: Final = "Install one, for instance with 'apt-get install openjdk-17-jre-headless'"


class MissingJavaError(OSError):
    """There is no Java, or one that is too old; `what` is the finding, `remedy` the advice."""

    def __init__(self, what: str, remedy: str) -> None:
        super().__init__(f"{what}. {remedy}")
        self.what = what
        self.remedy = remedy


def java_version() -> int:
    """Return the major version of Spark's Java; MissingJavaError without one or below 17."""
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    needed = f"Spark needs Java {JAVA_MIN} or newer, but"
    try:
        if java is None:
            raise FileNotFoundError("java is not on PATH")
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except OSError as error:
        why = f"it cannot be started ({error}; JAVA_HOME={home or 'not set'})"
        raise MissingJavaError(f"{needed} {why}", _remedy(home)) from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout).strip() or "it says nothing"
        raise MissingJavaError(
            f"{needed} '{java} -version' fails with status {error.returncode}: {said}",
            "Repair this Java, or the options in JAVA_TOOL_OPTIONS and JDK_JAVA_OPTIONS, or let "
            "JAVA_HOME lead to another",
        ) from error
    found = re.search(r'version "(\d+)', text)
    if found is None or int(found[1]) < JAVA_MIN:
        version = found[1] if found else "unknown"
        raise MissingJavaError(
            f"expected Java {JAVA_MIN} or newer, found {version} at {java}",
            "Let JAVA_HOME lead to another" + ("" if home else f". {_INSTALL}"),
        )
    return int(found[1])


def _remedy(home: str | None) -> str:
    """Return the advice for a machine without a Java that can be started."""
    if not home:
        return _INSTALL
    correct = "Let JAVA_HOME lead to the folder of a Java, which has bin/java in it"
    for folder in Path(home).parents[:2]:
        # The link leads to bin, or to java itself.
        if os.access(folder / "bin" / "java", os.X_OK):
            return f"{correct}: JAVA_HOME={folder}"
    if other := shutil.which("java"):
        return f"{correct}, or unset JAVA_HOME: then Spark takes {other}"
    return f"{correct}. {_INSTALL}"


@lru_cache(maxsize=1)
def begin_jvm() -> Any:
    """Return py4j's view of a JVM with the settings of spark-defaults.conf, and no session.

    Raises an OSError if it cannot be started, with the last lines of its log, which is not shown;
    or if a jar of the plugin is missing from this installation.
    """
    from pyspark.errors import PySparkException
    from pyspark.java_gateway import launch_gateway

    with tempfile.TemporaryFile() as log:
        try:
            with stderr_to(log):
                # It ends with this process, because its standard input does.
                jvm: Any = launch_gateway().jvm
        except (OSError, PySparkException) as error:
            log.seek(0)
            lines = log.read().decode(errors="replace").splitlines()
            # The end of a trace is the caller of Spark, its first line the error.
            said = [line for line in lines if not line.startswith("\tat ")][-_LAST_LINES:]
            raise OSError(
                "\n  ".join([f"the JVM of Spark did not start: {error}", *said])
            ) from error
    # spark.jars would replace the user's.
    for jar in plugin_jars():
        class_loader(jvm).addURL(jvm.java.io.File(str(jar)).toURI().toURL())
    return jvm


@contextmanager
def quick_start() -> Iterator[None]:
    """Start JVMs of Spark in half of the time: they compile less, but long jobs end later."""
    name = "SPARK_SUBMIT_OPTS"
    given = os.environ.get(name)
    os.environ[name] = " ".join(filter(None, ["-XX:TieredStopAtLevel=1", given]))
    try:
        yield
    finally:
        if given is None:
            del os.environ[name]
        else:
            os.environ[name] = given


@contextmanager
def stderr_to(file: BinaryIO) -> Iterator[None]:
    """Redirect the logs of processes that are started in the block to a file."""
    sys.stderr.flush()
    own = os.dup(2)
    try:
        os.dup2(file.fileno(), 2)
        yield
    finally:
        os.dup2(own, 2)
        os.close(own)


def class_loader(jvm: Any) -> Any:
    """Return the loader of a JVM that knows Spark's classes and Holdfast's."""
    return jvm.java.lang.Thread.currentThread().getContextClassLoader()
