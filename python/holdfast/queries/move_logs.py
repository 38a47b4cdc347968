"""Spark's logs as commands read them that publish a batch without input.

docs/internals/moves.md has the protocol. io.holdfast.spark.moves.Move writes the entries.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from holdfast._core import CommitId
from holdfast.files.paths import AnyPath
from holdfast.files.printable import printable
from holdfast.queries.folder import PROVIDER, is_query_checkpoint
from holdfast.queries.logs import (
    COMMITS_FOLDER,
    MOVE_KEY,
    OFFSETS_FOLDER,
    Commit,
    Plan,
    logged_batches,
    read_commit,
    read_plan,
)


@dataclass(frozen=True)
class Batch:
    """The entries that Spark's logs have of a committed batch."""

    number: int
    plan: Plan
    commit: Commit

    @property
    def conf(self) -> Mapping[str, str]:
        """Settings of the batch."""
        return self.plan.conf

    @property
    def provider(self) -> str:
        """The class that has the state; empty if a very old Spark noted none."""
        return self.plan.provider or ""

    @property
    def format(self) -> str:
        """The checkpoint format: 2 has ids of the state."""
        return "1" if self.commit.ids is None else "2"

    @property
    def has_views(self) -> bool:
        """Rows of it are still in stores of an older number of partitions."""
        return any(CommitId.is_view(id) for _, _, id in self.commit.ids or ())


@dataclass(frozen=True)
class Logs:
    """Spark's logs of a query with state.

    Attributes
    ----------
    newest : Batch
        The newest committed batch.
    planned : int
        The newest planned batch.
    """

    folder: AnyPath
    newest: Batch
    planned: int

    def require_next(self, changes: Mapping[str, str]) -> None:
        """Refuse a batch that has begun, unless a command has planned it with these settings.

        Raises
        ------
        OSError
            With what ends the batch.
        """
        if self.planned == self.newest.number + 1:
            pending = read_plan(self.folder, self.planned).conf
            if pending == {**self.newest.conf, **changes}:
                return
        self.require_ended()

    def require_ended(self) -> None:
        """Refuse a batch that has begun.

        Raises
        ------
        OSError
            With what ends the batch.
        """
        folder, newest, planned = self.folder, self.newest.number, self.planned
        if planned == newest:
            return
        if planned != newest + 1:
            raise OSError(
                f"the newest batch of {folder} is {planned} in {OFFSETS_FOLDER} and {newest} in "
                f"{COMMITS_FOLDER}: entries are missing. Put them back from a copy"
            )
        if command := read_plan(folder, planned).conf.get(MOVE_KEY):
            raise OSError(
                f"'holdfast {printable(command)}' of {folder} has begun and not ended: run that "
                "command again first, with --yes"
            )
        raise OSError(
            f"batch {planned} of {folder} has begun and not ended. If the query runs, stop it. "
            "Then run it once on its provider with trigger(availableNow=True), so that the batch "
            "ends"
        )

    def require_holdfast(self) -> None:
        """Refuse state in another provider.

        Raises
        ------
        OSError
            With the provider.
        """
        if self.newest.provider != PROVIDER:
            found = printable(self.newest.provider)
            raise OSError(f"the state of {self.folder} is in {found}, not in Holdfast")

    def before(self) -> Batch:
        """Return the batch before the newest committed one."""
        return _batch(self.folder, self.newest.number - 1)


def read(folder: AnyPath) -> Logs:
    """Read the logs of a query.

    Raises
    ------
    OSError
        If the folder has no state of a committed batch, or if an entry is damaged.
    """
    if not folder.exists():
        raise FileNotFoundError(f"{folder} does not exist")
    if not is_query_checkpoint(folder):
        raise FileNotFoundError(f"{folder} is not the checkpoint of a streaming query")
    planned, committed = (
        max(logged_batches(folder / log), default=-1) for log in (OFFSETS_FOLDER, COMMITS_FOLDER)
    )
    if committed < 0 or not (folder / "state").is_dir():
        raise OSError(
            f"{folder} has no state of a committed batch, so there is nothing to move. Start the "
            "query with a new checkpoint folder"
        )
    return Logs(folder, _batch(folder, committed), planned)


def _batch(folder: AnyPath, number: int) -> Batch:
    return Batch(number, read_plan(folder, number), read_commit(folder, number))
