"""Checkpoints on object stores move between providers and get other partitions: rows stay exact."""

from __future__ import annotations

import json

import pytest

from support.spark.commands import run_commands
from support.spark.faults import LOCAL, World, states
from support.spark.queries import PROVIDERS, STATE

# Ten applications in a row.
pytestmark = [pytest.mark.full, pytest.mark.timeout(1800)]


class Moved:
    """A query on an object store, and the batches that commands published."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.moved: set[int] = set()

    def run(self, provider: str, format: str = "2") -> None:
        """Runs the query for an input more, and compares all of its rows."""
        world = self.world
        world.feed(1)
        values = {
            STATE + "providerClass": PROVIDERS[provider],
            STATE + "checkpointFormatVersion": format,
        }
        conf = {key.replace(".", "__"): value for key, value in values.items()}
        world.start(LOCAL, "--complete", **conf).finish()
        undisturbed = states(world.fed)
        batches = [n for n in range(world.last_committed() + 1) if n not in self.moved]
        assert [world.output(n) for n in batches] == [
            undisturbed[world.inputs(n) - 1] for n in batches
        ]
        assert world.inputs(batches[-1]) == world.fed

    def move(self, name: str, *options: str) -> None:
        """Runs a command, which publishes a batch."""
        world = self.world
        line = [name, world.uri, *options, "--yes", "--json"]
        (printed,) = run_commands(world.settings, world.environment, line)
        batch = json.loads(printed)["batch"]
        assert batch == world.last_committed()
        world.is_without_input(batch)
        self.moved.add(batch)


@pytest.mark.parametrize(
    ("provider", "format"), [("rocksdb", "1"), ("hdfs", "1"), ("rocksdb", "2")]
)
def test_a_checkpoint_moves_there_and_back(provider: str, format: str, object_world: World) -> None:
    query = Moved(object_world)
    query.run(provider, format)
    query.move("adopt")
    query.move("undo")
    query.run(provider, format)
    query.move("adopt")
    query.run("holdfast")
    query.move("repartition", "--partitions", "6")
    query.run("holdfast")
    query.move("repartition", "--partitions", "5", "--rewrite")
    query.run("holdfast")
    query.move("leave", "--to", provider, "--format", format)
    query.run(provider, format)
