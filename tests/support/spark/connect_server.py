"""A Spark Connect server on loopback, and environments of clients."""

from __future__ import annotations

import subprocess
import sys
import sysconfig
from pathlib import Path

import pyspark

from harness.process import kill_session
from support import clean_environment
from support.servers import free_port, listens, wait_until_up

_PYSPARK = Path(pyspark.__file__).parent


def environment_without_holdfast(folder: Path) -> Path:
    """Make a virtual environment with all packages of this one but Holdfast; its interpreter."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", folder], check=True)
    (packages,) = folder.glob("lib/*/site-packages")
    for installed in Path(sysconfig.get_path("purelib")).iterdir():
        if not installed.name.startswith("holdfast"):
            (packages / installed.name).symlink_to(installed)
    return folder / "bin" / "python"


class ConnectServer:
    """A server in processes of its own. It ends with `kill`.

    Parameters
    ----------
    folder
        Receives logs and other files of the server; must exist.
    defaults
        Text of its ``spark-defaults.conf``.

    Attributes
    ----------
    folder
        The given one. Without other settings, tables are in ``spark-warehouse`` there.
    url
        The argument of clients for ``remote``, the same after another `start`.
    """

    def __init__(self, folder: Path, defaults: str) -> None:
        self.folder = folder
        self._port = free_port()
        self.url = f"sc://127.0.0.1:{self._port}"
        (folder / "conf").mkdir()
        binding = {"address": "127.0.0.1", "port": self._port}
        lines = [f"spark.connect.grpc.binding.{key} {value}" for key, value in binding.items()]
        text = "\n".join([defaults, *lines, ""])
        (folder / "conf" / "spark-defaults.conf").write_text(text)
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Start it, and wait until it listens."""
        assert self._process is None
        with (self.folder / "log.txt").open("ab") as log:
            self._process = subprocess.Popen(
                [_PYSPARK / "sbin" / "start-connect-server.sh", "--wait"],
                cwd=self.folder,
                env=clean_environment()
                | {
                    "SPARK_CONF_DIR": str(self.folder / "conf"),
                    "SPARK_LOG_DIR": str(self.folder),
                    "SPARK_PID_DIR": str(self.folder),
                    "PYSPARK_PYTHON": sys.executable,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
            )
        wait_until_up(self._process, "the server", lambda: listens(self._port), self.log)

    def log(self) -> str:
        """Its output, from all its starts."""
        return (self.folder / "log.txt").read_text(errors="replace")

    def kill(self) -> None:
        """kill -9 of the server with everything it started."""
        if self._process is not None:
            kill_session(self._process.pid)
            self._process.wait()
            self._process = None
