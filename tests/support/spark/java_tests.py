"""Runs tests/java, without Spark: ``python -m support.spark.java_tests``."""

from __future__ import annotations

import subprocess
import sys

from support import TESTS
from support.spark.java_side import QUICK_START, classpath, compiled, jars, tool

SOURCES = TESTS / "java"


def main() -> int:
    """Compiles the tests and runs them; returns 0 if all of them pass."""
    classes = compiled("*", *jars("junit"), sources=SOURCES)
    path = classpath(classes, *jars("junit"))
    launcher = ["org.junit.platform.console.ConsoleLauncher", "execute", "--disable-banner"]
    # Arguments of the caller choose tests, such as --include-classname.
    chosen = ["--scan-class-path", str(classes), "--fail-if-no-tests", "--details=tree"]
    command = [tool("java"), *QUICK_START, "-cp", path, *launcher, *chosen, *sys.argv[1:]]
    return subprocess.run(command, check=False).returncode


if __name__ == "__main__":
    sys.exit(main())
