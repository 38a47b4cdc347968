"""Where every split is: in the pool, or with a region. Pure: no files, no clock, no threads."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, Self

from holdfast.regions.splits.file_split import FileSplit

VERSION: Final = 1

# A split whose regions failed so often is handed out alone: if it is to blame, no other split
# waits for it, and the cause of the failure names it.
ALONE_AFTER: Final = 2


@dataclass(frozen=True, slots=True)
class Waiting:
    """A split on its way.

    Attributes
    ----------
    split : FileSplit
        The split.
    failures : int
        How often a region failed that had it.
    region : str
        The last such region; empty if there was none.
    """

    split: FileSplit
    failures: int = 0
    region: str = ""


@dataclass(slots=True)
class Assignment:
    """The enumerator's state.

    Attributes
    ----------
    pool : list of Waiting
        Splits that no region has, in the order in which they are handed out.
    given : dict of str to list of (int, Waiting)
        By region: splits that it received, with the checkpoint id of the attempt, and of which it
        is not known that a checkpoint covers them.
    seen : dict of str to int
        Files that were divided: when they were modified, nanoseconds since the epoch.
    newest_ns : int
        When the newest of all files was modified, but not later than when it was found.
    forgotten_ns : int
        Of files that were modified before this, names are not in `seen` although they may have
        been read.
    """

    pool: list[Waiting] = field(default_factory=list)
    given: dict[str, list[tuple[int, Waiting]]] = field(default_factory=dict)
    seen: dict[str, int] = field(default_factory=dict)
    newest_ns: int = 0
    forgotten_ns: int = 0

    def copy(self) -> Self:
        """Return one that can be changed without this one."""
        given = {region: list(splits) for region, splits in self.given.items()}
        return replace(self, pool=list(self.pool), given=given, seen=dict(self.seen))

    def hand_out(
        self, checkpoint: int, regions: Sequence[str], *, splits_per_region: int
    ) -> list[tuple[str, FileSplit]]:
        """Give splits to regions, the least to the region that has the most bytes.

        Parameters
        ----------
        checkpoint : int
            Id of the attempt.
        regions : sequence of str
            Regions that can be given splits.
        splits_per_region : int
            How many splits a region has at most.

        Returns
        -------
        list of (str, FileSplit)
            What each region is to be sent, in this order.
        """
        given: list[tuple[str, FileSplit]] = []
        free = [region for region in regions if not self.given.get(region)]
        for waiting in [w for w in self.pool if w.failures >= ALONE_AFTER]:
            # To the same region again: a split that is to blame makes no second region fall back.
            region = waiting.region if waiting.region in regions else next(iter(free), "")
            if region in free:
                free.remove(region)
                given.append(self._give(checkpoint, region, waiting))
        load = {
            region: sum(waiting.split.size for _, waiting in self.given.get(region, ()))
            for region in regions
            if not any(waiting.failures >= ALONE_AFTER for _, waiting in self.given.get(region, ()))
        }
        for waiting in [w for w in self.pool if w.failures < ALONE_AFTER]:
            room = [region for region in load if self._count(region) < splits_per_region]
            if not room:
                break
            region = min(room, key=lambda name: (load[name], self._count(name)))
            load[region] += waiting.split.size
            given.append(self._give(checkpoint, region, waiting))
        return given

    def take_back(self, region: str, origin: int) -> None:
        """Return to the pool what a region received after its origin, in front of the others."""
        received = self.given.pop(region, [])
        lost = [waiting for id, waiting in received if id > origin]
        if len(lost) < len(received):
            self.given[region] = [item for item in received if item[0] <= origin]
        self.pool[:0] = [replace(w, failures=w.failures + 1, region=region) for w in lost]

    def covered(self, effective: Mapping[str, int]) -> None:
        """Forget what regions received up to the id to which a checkpoint covers them."""
        for region in list(self.given):
            if region not in effective:
                continue
            left = [item for item in self.given[region] if item[0] > effective[region]]
            if left:
                self.given[region] = left
            else:
                del self.given[region]

    def forget_older_than(self, modified_ns: int) -> set[str]:
        """Drop the names of files that are too old to be looked at again; returns them."""
        forgotten = {path for path, at in self.seen.items() if at < modified_ns}
        for path in forgotten:
            del self.seen[path]
        self.forgotten_ns = max(self.forgotten_ns, modified_ns)
        return forgotten

    def bound_by(self, now_ns: int, max_file_age_ns: int) -> None:
        """Correct what was restored from an older version, which took times in the future as such.

        Names may be forgotten up to what it took for too old. Files that are modified from now on
        are new all the same.
        """
        if self.newest_ns > now_ns:
            self.forgotten_ns = max(
                self.forgotten_ns, min(self.newest_ns - max_file_age_ns, now_ns)
            )
            self.newest_ns = now_ns

    def add(self, splits: Iterable[FileSplit]) -> None:
        """Put splits behind the others."""
        self.pool.extend(Waiting(split) for split in splits)

    def encode(self) -> bytes:
        """Return what a checkpoint holds: JSON.

        What regions were given is not in it: it is in their states and in-flight data.
        """
        content = {
            "version": VERSION,
            "newest_ns": self.newest_ns,
            # Added later: without it, no more is forgotten than the time of the newest allows.
            **({"forgotten_ns": self.forgotten_ns} if self.forgotten_ns else {}),
            "seen": self.seen,
            "pool": [
                {**waiting.split.to_json(), "failures": waiting.failures, "region": waiting.region}
                for waiting in self.pool
            ],
        }
        return json.dumps(content, separators=(",", ":")).encode()

    @classmethod
    def decode(cls, snapshot: bytes) -> Self:
        """Return the state that a checkpoint holds.

        Raises
        ------
        ValueError
            If a newer version of Holdfast wrote it.
        """
        content = json.loads(snapshot)
        if content["version"] > VERSION:
            raise ValueError(
                f"the checkpoint's list of splits has version {content['version']}: this program "
                f"reads versions up to {VERSION}, install a newer one"
            )
        pool = []
        for fields in content["pool"]:
            failures, region = fields.pop("failures"), fields.pop("region")
            pool.append(Waiting(FileSplit.of_json(fields), failures, region))
        return cls(
            pool=pool,
            seen=content["seen"],
            newest_ns=content["newest_ns"],
            forgotten_ns=content.get("forgotten_ns", 0),
        )

    def _give(self, checkpoint: int, region: str, waiting: Waiting) -> tuple[str, FileSplit]:
        self.pool.remove(waiting)
        self.given.setdefault(region, []).append((checkpoint, waiting))
        return region, waiting.split

    def _count(self, region: str) -> int:
        return len(self.given.get(region, ()))
