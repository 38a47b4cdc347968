"""Files that changed after their splits were made."""

from __future__ import annotations

import logging
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from holdfast.regions.splits.assignment import Assignment, Skipped
from holdfast.regions.splits.discovery import FoundFile, found_file, read_footer, split_file
from holdfast.regions.splits.file_split import FileSplit

LOG: Final = logging.getLogger(__name__)

#: Bound on the files that a warning names.
NAMED: Final = 3

_Outcome = tuple[Sequence[FileSplit], Sequence[Skipped]]
"""Splits of a file that are read, and those that are skipped."""


def named(paths: Collection[str]) -> str:
    """List the first few files, for a message; names that are not UTF-8 are escaped."""
    shown = ", ".join(map(repr, sorted(paths)[:NAMED]))
    return f"{shown} and {len(paths) - NAMED} more" if len(paths) > NAMED else shown


@dataclass(frozen=True)
class FileChanges:
    """Brings splits in line with their files, before regions get them.

    An unread file that changed is divided again, or dropped if it is gone. If a file was read in
    part, the rest is read only if the file has the same footer: else rows of two files would be
    mixed. If it has another footer, the rest is skipped if `skips`; otherwise its regions fail.
    """

    folder: Path
    kind: str
    split_bytes: int
    skips: bool

    def divided(self, file: FoundFile) -> list[FileSplit]:
        """Divide a file into splits."""
        return split_file(self.folder, file, kind=self.kind, split_bytes=self.split_bytes)

    def settle_next(self, assignment: Assignment, count: int) -> None:
        """Check the files of the next `count` splits, each once."""
        settled: set[str] = set()
        while todo := [p for p in assignment.next_paths(count) if p not in settled]:
            settled.update(todo)
            self._settle(assignment, todo, again=False)

    def look_again(self, assignment: Assignment) -> None:
        """Try changed files' skipped splits again, or all if none may be skipped."""
        paths = [one.split.path for one in assignment.skipped if self._is_worth_it(one)]
        self._settle(assignment, list(dict.fromkeys(paths)), again=True)

    def _is_worth_it(self, one: Skipped) -> bool:
        try:
            file = found_file(self.folder, one.split.path)
        except OSError:
            return False
        now = None if file is None else (file.size, file.modified_ns)
        return now != one.found or (now is not None and not self.skips)

    def _settle(self, assignment: Assignment, paths: Sequence[str], *, again: bool) -> None:
        """Decide about files that changed, or `again` about all of these."""
        files: dict[str, FoundFile | None] = {}
        for path in paths:
            try:
                files[path] = found_file(self.folder, path)
            except OSError:
                continue  # The region that reads it reports the error.
        removed: set[str] = set()
        cut: set[str] = set()
        outcomes: dict[str, _Outcome] = {}
        for path, splits in assignment.splits_of(files).items():
            file = files[path]
            if file is None and _is_unread(splits):
                removed.add(path)
                outcomes[path] = [], []
            elif file is None:
                # It may be on a disk that is not mounted now.
                cut.add(path)
                reason = "the file was removed when only part of it was read"
                outcomes[path] = [], [Skipped(split, reason, None) for split in splits]
            elif again or not all(_fits(split, file) for split in splits):
                if (found := self._of_changed(splits, file)) is None:
                    assignment.unskip(path)
                else:
                    outcomes[path] = found
        assignment.drop(outcomes.keys())
        for path, (waiting, skipped) in outcomes.items():
            assignment.add(waiting)
            assignment.skipped.extend(skipped)
            if (file := files[path]) is not None:
                assignment.seen[path] = file.modified_ns
            elif not skipped:  # If it returns, it is a new one.
                assignment.seen.pop(path, None)
        folder = str(self.folder)
        if removed:
            LOG.warning("removed from %r before they were read: %s", folder, named(removed))
        if cut:
            LOG.warning(
                "removed from %r when only part of them was read; the rest is skipped unless they "
                "come back: %s",
                folder,
                named(cut),
            )

    def _of_changed(self, splits: Sequence[FileSplit], file: FoundFile) -> _Outcome | None:
        """Return the splits to read and those to skip; None: regions fail with the file."""
        if all(_fits(split, file) for split in splits):
            return splits, []
        if _is_unread(splits):
            LOG.info("%r was changed before it was read", file.path)
            return self.divided(file), []
        if self._has_same_footer(splits[0], file):
            return [replace(split, modified_ns=file.modified_ns) for split in splits], []
        if not self.skips:
            return None
        reason = "the file was changed when only part of it was read"
        LOG.warning("%r is skipped from now on: %s", file.path, reason)
        found = (file.size, file.modified_ns)
        return [], [Skipped(split, reason, found) for split in splits]

    def _has_same_footer(self, split: FileSplit, file: FoundFile) -> bool:
        if not split.footer or file.size != split.file_bytes:
            return False
        footer = read_footer(self.folder / file.path)
        return footer is not None and footer.digest == split.footer


def _fits(split: FileSplit, file: FoundFile) -> bool:
    return (split.file_bytes, split.modified_ns) == (file.size, file.modified_ns)


def _is_unread(splits: Sequence[FileSplit]) -> bool:
    """Say whether these splits, which no region has, are a whole file."""
    return splits[0].groups is None or len(splits) == splits[0].parts
