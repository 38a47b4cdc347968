"""Where the checkpoints of measured queries are, and what is there after a run."""

from __future__ import annotations

import shutil
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from enum import Enum
from pathlib import Path
from typing import TYPE_CHECKING

from common.java import BENCHES, compile_java

from harness.objects import StateObjects, count_objects, count_state_objects

if TYPE_CHECKING:
    from support.spark.mini_hdfs import MiniHdfs

#: About the first byte of a PUT to an object store in the same region.
CREATE_MS = 30


class Place(Enum):
    """Kinds of file systems."""

    LOCAL = "a local folder"
    DELAYED = f"a local folder where every create takes {CREATE_MS} ms more"
    HDFS = "an HDFS of one data node in another JVM"


class Site(ABC):
    """A place for the checkpoints of one case, one run after the other.

    Attributes
    ----------
    settings
        Spark's, to get there.
    """

    def __init__(self, settings: Mapping[str, str]) -> None:
        self.settings = settings

    @abstractmethod
    def checkpoint(self, run: str) -> str:
        """Return the checkpoint root of a run."""

    @abstractmethod
    def objects(self, run: str) -> StateObjects:
        """Count what the run left, and let go of it."""

    def operations(self) -> int | None:
        """Return the requests that the name node has served; None without name node."""
        return None


class Folder(Site):
    """A local folder, by its path or by a URI of another scheme."""

    def __init__(
        self, folder: Path, *, scheme: str = "", settings: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(settings or {})
        self._folder = folder
        self._scheme = scheme

    def checkpoint(self, run: str) -> str:
        return f"{self._scheme}{self._folder / run}"

    def objects(self, run: str) -> StateObjects:
        found = count_state_objects(self._folder / run)
        shutil.rmtree(self._folder / run)
        return found


class Hdfs(Site):
    """A folder on an HDFS that runs as long as this does."""

    def __init__(self, cluster: MiniHdfs) -> None:
        super().__init__({"spark.hadoop.dfs.replication": "1"})
        self._cluster = cluster

    def checkpoint(self, run: str) -> str:
        return f"{self._cluster.uri}/{run}"

    def objects(self, run: str) -> StateObjects:
        return count_objects(self._cluster.files(self.checkpoint(run)))

    def operations(self) -> int | None:
        return self._cluster.operations()


@contextmanager
def open_site(place: Place, folder: Path) -> Iterator[Site]:
    """Make a place ready; what is needed for it is put into `folder`.

    Raises
    ------
    BuildError
        If its Java part cannot be compiled.
    """
    folder.mkdir()
    if place is Place.LOCAL:
        yield Folder(folder)
    elif place is Place.DELAYED:
        classes = compile_java(BENCHES / "spark" / "java", into=folder / "classes")
        settings = {
            "spark.driver.extraClassPath": str(classes),
            "spark.hadoop.fs.delayed.impl": "io.holdfast.bench.DelayedFileSystem",
            "spark.hadoop.fs.AbstractFileSystem.delayed.impl": "io.holdfast.bench.Delayed",
            "spark.hadoop.fs.delayed.create.ms": str(CREATE_MS),
        }
        yield Folder(folder, scheme="delayed:", settings=settings)
    else:
        with _hdfs(folder) as site:
            yield site


@contextmanager
def _hdfs(folder: Path) -> Iterator[Hdfs]:
    # The tests have the cluster and the means to fetch its jars; see `run.py`.
    from support.spark.mini_hdfs import MiniHdfs

    with closing(MiniHdfs(folder, data_nodes=1)) as cluster:
        yield Hdfs(cluster)
