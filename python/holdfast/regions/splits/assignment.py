"""The place of every split: in the pool, or with a region. Pure: no files, no clock, no threads."""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from holdfast._core import CheckpointMetadata
from holdfast.regions.base.versions import require_known
from holdfast.regions.coordinator import CheckpointInfo, event_record
from holdfast.regions.splits.file_split import BadSplit, FileSplit

#: Name of the source among the operators of a checkpoint; no operator can have it.
SOURCE_OPERATOR: Final = "#source"

VERSION: Final = 1

# Failures of its regions after which a split is handed out alone: if it is to blame, no other split
# waits for it, and the cause of the failure names it.
ALONE_AFTER: Final = 2


@dataclass(frozen=True, slots=True)
class Waiting:
    """A split under way: number of failures of regions that had it, and the last of these."""

    split: FileSplit
    failures: int = 0
    region: str = ""


@dataclass(frozen=True, slots=True)
class Skipped:
    """A split that is not read.

    `found` are size in bytes and time of modification, nanoseconds since the epoch, of the file at
    that time; if the file has others, it is read again. None: there was no file.
    """

    split: FileSplit
    reason: str
    found: tuple[int, int] | None


@dataclass(slots=True)
class Assignment:
    """The enumerator's state.

    Attributes
    ----------
    pool : list of Waiting
        Splits that no region has, in the order in which they are handed out.
    given : dict of str to list of (int, Waiting)
        By region: splits that it received and that no checkpoint is known to cover, with the
        checkpoint id of the attempt.
    seen : dict of str to int
        Time of modification of each file that was divided, nanoseconds since the epoch.
    newest_ns : int
        Time of modification of the newest file, or the time when it was found if that is earlier.
    forgotten_ns : int
        Names of files that were modified before this may be missing in `seen`.
    """

    pool: list[Waiting] = field(default_factory=list)
    given: dict[str, list[tuple[int, Waiting]]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    newest_ns: int = 0
    forgotten_ns: int = 0
    skipped: list[Skipped] = field(default_factory=list)

    def copy(self) -> Self:
        """Return a copy that can be changed without this one."""
        given = {region: list(splits) for region, splits in self.given.items()}
        pool, seen, skipped = list(self.pool), dict(self.seen), list(self.skipped)
        return replace(self, pool=pool, given=given, seen=seen, skipped=skipped)

    # --- handing out ----------------------------------------------------------------------------

    def next_paths(self, count: int) -> list[str]:
        """Return the files of the next splits: all that are read separately, and `count` others."""
        alone, others = self._divided()
        return list(dict.fromkeys(one.split.path for one in [*alone, *others[:count]]))

    def hand_out(
        self, checkpoint: int, regions: Sequence[str], *, splits_per_region: int
    ) -> list[tuple[str, FileSplit]]:
        """Give splits to regions, the least to the one with the most bytes; returns both."""
        given: list[tuple[str, FileSplit]] = []
        free = [region for region in regions if not self.given.get(region)]
        alone, others = self._divided()
        for waiting in alone:
            # To the same region again: a bad split makes no second region fall back.
            region = waiting.region if waiting.region in regions else next(iter(free), "")
            if region in free:
                free.remove(region)
                given.append(self._give(checkpoint, region, waiting))
        having = {region: [one for _, one in self.given.get(region, ())] for region in regions}
        load = {
            region: sum(one.split.size for one in received)
            for region, received in having.items()
            if not any(one.failures >= ALONE_AFTER for one in received)
        }
        for waiting in others:
            room = [region for region in load if self._count(region) < splits_per_region]
            if not room:
                break
            region = min(room, key=lambda name: (load[name], self._count(name)))
            load[region] += waiting.split.size
            given.append(self._give(checkpoint, region, waiting))
        return given

    def take_back(self, region: str, origin: int) -> None:
        """Return the splits that a region received after its origin, to the front of the pool."""
        received = self.given.get(region, [])
        self._leave(region, [item for item in received if item[0] <= origin])
        lost = [waiting for id, waiting in received if id > origin]
        self.pool[:0] = [replace(w, failures=w.failures + 1, region=region) for w in lost]

    def covered(self, info: CheckpointInfo) -> None:
        """Forget the splits of each region up to the id to which a checkpoint covers them."""
        for region, given in list(self.given.items()):
            self._leave(region, [item for item in given if item[0] > info.effective(region)])

    # --- files ----------------------------------------------------------------------------------

    def unread_paths(self) -> set[str]:
        """Return the files with splits that no checkpoint is known to have."""
        waiting = [*self.pool, *(one for items in self.given.values() for _, one in items)]
        return {one.split.path for one in waiting} | {one.split.path for one in self.skipped}

    def splits_of(self, paths: Collection[str]) -> dict[str, list[FileSplit]]:
        """Return waiting or skipped splits of files that no region reads."""
        given = {waiting.split.path for items in self.given.values() for _, waiting in items}
        found: dict[str, list[FileSplit]] = {}
        for split in [one.split for one in self.pool] + [one.split for one in self.skipped]:
            if split.path in paths and split.path not in given:
                found.setdefault(split.path, []).append(split)
        return found

    def drop(self, paths: Collection[str]) -> None:
        """Forget the splits of files that wait or are skipped."""
        self.pool = [waiting for waiting in self.pool if waiting.split.path not in paths]
        self.skipped = [one for one in self.skipped if one.split.path not in paths]

    def unskip(self, path: str) -> None:
        """Let the skipped splits of a file wait again."""
        self.add(one.split for one in self.skipped if one.split.path == path)
        self.skipped = [one for one in self.skipped if one.split.path != path]

    def skip(self, region: str, bad: BadSplit) -> None:
        """Skip a split that its region left out."""
        split = bad.split
        given = self.given.get(region, [])
        self.skipped.append(Skipped(split, bad.reason, (split.file_bytes, split.modified_ns)))
        self._leave(region, [item for item in given if item[1].split != split])

    def forget_older_than(self, modified_ns: int) -> set[str]:
        """Drop the names of files that are too old to be read again; returns them."""
        self.skipped = [
            one for one in self.skipped if one.found or one.split.modified_ns >= modified_ns
        ]
        forgotten = {path for path, at in self.seen.items() if at < modified_ns}
        for path in forgotten:
            del self.seen[path]
        self.forgotten_ns = max(self.forgotten_ns, modified_ns)
        return forgotten

    def bound_by(self, now_ns: int, max_file_age_ns: int) -> None:
        """Correct times in the future, as after a clock that was set back.

        Names of files that are too old by such a time may be forgotten. Files modified later are
        new.
        """
        if self.newest_ns > now_ns:
            too_old_ns = min(self.newest_ns - max_file_age_ns, now_ns)
            self.forgotten_ns = max(self.forgotten_ns, too_old_ns)
            self.newest_ns = now_ns

    def add(self, splits: Iterable[FileSplit]) -> None:
        """Put splits after the others."""
        self.pool.extend(Waiting(split) for split in splits)

    # --- checkpoints ----------------------------------------------------------------------------

    def encode(self) -> bytes:
        """Return the state as JSON, without splits of regions, whose states and rows have them."""
        content = {
            "version": VERSION,
            "newest_ns": self.newest_ns,
            "forgotten_ns": self.forgotten_ns,
            "seen": self.seen,
            "pool": [
                {**waiting.split.to_json(), "failures": waiting.failures, "region": waiting.region}
                for waiting in self.pool
            ],
        }
        if self.skipped:
            content["skipped"] = [
                {**one.split.to_json(), "reason": one.reason, "found": one.found}
                for one in self.skipped
            ]
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, snapshot: bytes) -> Self:
        """Return the state in a checkpoint; NewerFormatError if a newer Holdfast wrote it."""
        content = json.loads(snapshot)
        require_known("the checkpoint's list of splits", content["version"], VERSION)
        pool, skipped = [], []
        for fields in content["pool"]:
            failures, region = fields.pop("failures"), fields.pop("region")
            pool.append(Waiting(FileSplit.of_json(fields), failures, region))
        for fields in content.get("skipped", ()):
            reason, found = fields.pop("reason"), fields.pop("found")
            status = None if found is None else tuple(found)
            skipped.append(Skipped(FileSplit.of_json(fields), reason, status))
        return cls(
            pool=pool,
            seen=content["seen"],
            newest_ns=content["newest_ns"],
            forgotten_ns=content["forgotten_ns"],
            skipped=skipped,
        )

    def _divided(self) -> tuple[list[Waiting], list[Waiting]]:
        """Return the splits of the pool that are handed out separately, and the others."""
        alone = [waiting for waiting in self.pool if waiting.failures >= ALONE_AFTER]
        return alone, [waiting for waiting in self.pool if waiting.failures < ALONE_AFTER]

    def _leave(self, region: str, items: list[tuple[int, Waiting]]) -> None:
        """Leave these splits to a region, and no others."""
        self.given[region] = items
        if not items:
            del self.given[region]

    def _give(self, checkpoint: int, region: str, waiting: Waiting) -> tuple[str, FileSplit]:
        self.pool.remove(waiting)
        self.given.setdefault(region, []).append((checkpoint, waiting))
        return region, waiting.split

    def _count(self, region: str) -> int:
        return len(self.given.get(region, ()))


def skipped_splits(metadata: CheckpointMetadata) -> list[Skipped]:
    """Return the splits of files that a pipeline skips as of a checkpoint."""
    snapshot = metadata.coordinators.get(SOURCE_OPERATOR)
    if snapshot is None:
        return []
    assignment = Assignment.decode(snapshot)
    # Regions report bad splits after the enumerator took its snapshot.
    for region, event in event_record.decode(metadata.coordinators, SOURCE_OPERATOR).received:
        assignment.skip(region, BadSplit.decode(event))
    return assignment.skipped
