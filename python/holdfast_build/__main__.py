"""One step of the build by name: ``python -m holdfast_build jars``.

``jars`` builds the jars of the plugin, ``notices`` writes the notices of the linked crates
(`make notices`), ``release`` builds the published files into ``dist/release`` (`make release`).
"""

from __future__ import annotations

import sys

from holdfast_build import notices
from holdfast_build.plugin import build_plugin_jars
from holdfast_build.release import build_release
from holdfast_build.tools import ROOT, BuildError


def main() -> int:
    """Run one step of the build by name."""
    step = sys.argv[1] if len(sys.argv) == 2 else ""
    try:
        if step == "jars":
            print(*build_plugin_jars(), sep="\n")
        elif step == "notices":
            notices.FILE.write_text(notices.notices())
        elif step == "release":
            print(*build_release(ROOT / "dist" / "release"), sep="\n")
        else:
            print("usage: python -m holdfast_build jars|notices|release", file=sys.stderr)
            return 2
    except BuildError as error:
        print(f"holdfast_build: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
