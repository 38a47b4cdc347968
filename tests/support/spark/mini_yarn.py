"""A real YARN: a resource manager and node managers in a JVM of their own, on loopback."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import pyspark

from support.spark.java_side import (
    QUICK_START,
    SERVER_JARS,
    JavaServer,
    classpath,
    compiled,
    jars,
    tool,
)


class MiniYarn(JavaServer):
    """The other process. It ends its containers when it ends.

    Parameters
    ----------
    folder
        Receives the folders of containers, logs and settings; must exist.
    default
        URI of the default file system of its applications.
    node_managers
        Their number.
    """

    def __init__(self, folder: Path, *, default: str, node_managers: int) -> None:
        cluster = [*jars("hdfs"), *jars("yarn")]
        helpers = compiled("MiniYarn", *cluster, spark=SERVER_JARS)
        path = classpath(helpers, *cluster, spark=SERVER_JARS)
        self.folder = folder
        self.log = (folder / "log.txt").open("wb")
        program = ["MiniYarn", str(folder), default, str(node_managers)]
        self.process = subprocess.Popen(
            [tool("java"), *QUICK_START, "-Xmx512m", "-cp", path, *program],
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self.log,
            text=True,
        )
        assert self.process.stdout is not None
        while (line := self.process.stdout.readline()) != "up\n":
            if not line:
                raise AssertionError(f"YARN ended: {(folder / 'log.txt').read_text()[-4000:]}")

    @property
    def environment(self) -> dict[str, str]:
        """The environment of applications."""
        java = shutil.which(tool("java"))
        assert java is not None
        home = str(Path(java).resolve().parents[1])
        return {"HADOOP_CONF_DIR": str(self.folder / "settings"), "JAVA_HOME": home}

    @property
    def settings(self) -> dict[str, str]:
        """Settings of Spark: containers use its jars in place."""
        jars_here = Path(pyspark.__file__).parent / "jars"
        return {
            "spark.yarn.jars": f"local:{jars_here}/*",
            "spark.yarn.am.memory": "512m",
            "spark.executor.instances": "2",
            "spark.executor.memory": "512m",
            "spark.pyspark.python": sys.executable,
            "spark.yarn.appMasterEnv.JAVA_HOME": self.environment["JAVA_HOME"],
            "spark.executorEnv.JAVA_HOME": self.environment["JAVA_HOME"],
        }
