"""A real Kafka broker for tests."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from support.servers import START_SECONDS, free_port, listens, wait_until_up
from support.spark.class_archive import on_class_path
from support.spark.java_side import (
    QUICK_START,
    JavaServer,
    compiled,
    jars,
    skipped_without_jars,
    tool,
)

#: 16 bytes, in base64.
CLUSTER_ID = "holdfast-test-clusterA"


class KafkaBroker(JavaServer):
    """A broker on loopback, in a JVM of its own.

    Parameters
    ----------
    folder
        Receives the topics and the log; must exist.
    helpers
        The compiled ``tests/spark/java``.
    partitions
        Partitions of every topic; the first write makes a topic.
    settings
        Lines for its properties.
    """

    def __init__(
        self, folder: Path, helpers: Path, *, partitions: int, settings: Sequence[str] = ()
    ) -> None:
        path = os.pathsep.join(map(str, [helpers, *jars("kafka")]))
        #: The environment of applications that read the topics.
        self.environment = on_class_path(*jars("spark-kafka"))
        port, controller = free_port(), free_port()
        self.servers = f"127.0.0.1:{port}"
        properties = folder / "kafka.properties"
        properties.write_text(
            "process.roles=broker,controller\n"
            "node.id=1\n"
            f"controller.quorum.voters=1@127.0.0.1:{controller}\n"
            "controller.listener.names=CONTROLLER\n"
            f"listeners=PLAINTEXT://{self.servers},CONTROLLER://127.0.0.1:{controller}\n"
            f"log.dirs={folder / 'topics'}\n"
            f"num.partitions={partitions}\n"
            "offsets.topic.replication.factor=1\n"
            "transaction.state.log.replication.factor=1\n"
            "transaction.state.log.min.isr=1\n"
            "group.initial.rebalance.delay.ms=0\n" + "".join(f"{line}\n" for line in settings)
        )
        logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        self._java = [tool("java"), *QUICK_START, "-Xmx256m", logging, "-cp", path]
        self._properties, self._port = properties, port
        self.log = (folder / "kafka.log").open("ab")
        cluster = ["-t", CLUSTER_ID, "-c", str(properties)]
        subprocess.run(
            [*self._java, "kafka.tools.StorageTool", "format", *cluster],
            stdout=self.log,
            stderr=self.log,
            timeout=START_SECONDS,
            check=True,
        )
        self.start()

    def start(self) -> None:
        """Start it, for the first time or after `stop`."""
        self.process = subprocess.Popen(
            [*self._java, "UntilInputEnds", "kafka.Kafka", str(self._properties)],
            stdin=subprocess.PIPE,
            stdout=self.log,
            stderr=self.log,
        )
        log = Path(self.log.name)
        wait_until_up(self.process, "the broker", lambda: listens(self._port), log.read_text)

    def stop(self) -> None:
        """End it like a crash; its topics are kept."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        self.process.wait(timeout=60)


@contextmanager
def running_broker(folder: Path, *, partitions: int) -> Iterator[KafkaBroker]:
    """A broker for the tests of a module; they are skipped if there are no jars."""
    with skipped_without_jars():
        broker = KafkaBroker(folder, compiled("UntilInputEnds"), partitions=partitions)
    yield broker
    broker.close()
