"""Entry point of ``python -m holdfast``."""

import sys

from holdfast.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
