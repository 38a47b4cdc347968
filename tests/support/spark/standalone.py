"""A standalone cluster of Spark on loopback: a master and workers, each a process of its own."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import pyspark

from support import environment
from support.servers import free_port, wait_until_up

#: Runs a program with mounts of its own.
_UNSHARED: Final = ("unshare", "--mount", "--propagation", "private")

#: Hides the folder that is the first argument, and becomes the program in the others.
_HIDDEN: Final = 'mount -t tmpfs none "$0" && exec "$@"'


def has_mounts() -> bool:
    """True if this user may give a process mounts of its own."""
    try:
        return subprocess.run([*_UNSHARED, "true"], capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


class StandaloneCluster:
    """Master and workers. They end with `close`, with all executors that they have started.

    Parameters
    ----------
    folder
        Receives logs and the folders of applications; must exist.
    workers
        Their number; each has one core.
    unseen
        A folder that is empty for the workers and executors, as on other machines. Needs
        `has_mounts`.
    variables
        Further variables of the environment of all processes.
    """

    def __init__(
        self,
        folder: Path,
        *,
        workers: int,
        unseen: Path | None = None,
        variables: Mapping[str, str] | None = None,
    ) -> None:
        self._folder = folder
        self._variables = dict(variables or {})
        self._apart = [] if unseen is None else [*_UNSHARED, "sh", "-c", _HIDDEN, str(unseen)]
        port = free_port()
        #: For ``--master``.
        self.url = f"spark://127.0.0.1:{port}"
        self._processes: list[subprocess.Popen[bytes]] = []
        deploy = "org.apache.spark.deploy"
        try:
            self._start(f"{deploy}.master.Master", "--port", str(port), until="New state: ALIVE")
            for _ in range(workers):
                limits = ["--cores", "1", "--memory", "1g", "--work-dir", str(folder / "work")]
                name = f"{deploy}.worker.Worker"
                self._start(name, *limits, self.url, until="Successfully reg", apart=self._apart)
        except BaseException:
            self.close()
            raise

    def _start(self, name: str, *arguments: str, until: str, apart: Sequence[str] = ()) -> None:
        log = self._folder / f"{len(self._processes)}-{name.rpartition('.')[2]}.log"
        address = ["--host", "127.0.0.1", "--webui-port", str(free_port())]
        with log.open("wb") as output:
            process = subprocess.Popen(
                [
                    *apart,
                    str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
                    name,
                    *address,
                    *arguments,
                ],
                # Also for Hadoop's client: nothing looks for this machine by another name.
                env=environment(self._variables)
                | {"SPARK_LOCAL_IP": "127.0.0.1", "SPARK_DAEMON_MEMORY": "256m"},
                stdout=output,
                stderr=output,
                start_new_session=True,
            )
        self._processes.append(process)
        said = partial(log.read_text, errors="replace")
        wait_until_up(process, name, lambda: until in said(), said)

    def executors(self) -> list[str]:
        """Return the ids of the executors that an application had, for example ``app-1/0``."""
        return sorted(
            f"{path.parent.name}/{path.name}" for path in (self._folder / "work").glob("app-*/*")
        )

    def close(self) -> None:
        """End everything."""
        for process in reversed(self._processes):
            # Executors are in the sessions of their workers.
            try:
                os.killpg(process.pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            process.wait()
