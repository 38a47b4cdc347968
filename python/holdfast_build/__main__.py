"""``python -m holdfast_build javac``: compile the Java sources and keep nothing (`make lint`)."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

from holdfast_build.plugin import BuildError, build_plugin_jar, compile_java


def main() -> int:
    """Run one step of the build by name: ``javac`` or ``jar``."""
    step = sys.argv[1] if len(sys.argv) == 2 else ""
    try:
        if step == "javac":
            with tempfile.TemporaryDirectory(prefix="holdfast-classes-") as folder:
                compile_java(Path(folder))
        elif step == "jar":
            print(build_plugin_jar())
        else:
            print("usage: python -m holdfast_build javac|jar", file=sys.stderr)
            return 2
    except BuildError as error:
        print(f"holdfast_build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
