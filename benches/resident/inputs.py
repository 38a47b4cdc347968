"""Inputs of queries over large state, batch by batch, and the output that they must have."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

#: The columns of every source.
SCHEMA = "number LONG, amount LONG"

#: Every batch has the same rows in every run.
_SEED = 4321

#: Of the rows of a batch on a store that was filled, so many are of keys that are new.
_NEW_SHARE = 10

_AMOUNTS = 1000

_FIRST_FILE_SECONDS = 1_700_000_000

#: Of a query that reads these files: Spark's triggers come at multiples of it since the epoch. So
#: long an interval that a trigger which finds no files has ended before the next batch is written.
TRIGGER_S = 1

#: Numbers whose rows make one list.
ROWS_OF_GROUP = 5

#: A join of a large side with a small one keeps one row of so many on the small side.
ROWS_OF_FEW = 10

Numbers = npt.NDArray[np.int64]


@dataclass(frozen=True, kw_only=True)
class Batch:
    """The rows of one batch.

    Attributes
    ----------
    numbers
        Keys, for each table of the query.
    """

    index: int
    numbers: Sequence[Numbers]

    @property
    def amounts(self) -> Sequence[Numbers]:
        """The numbers that are added up by key, for each table."""
        return [(numbers * 31 + self.index) % _AMOUNTS for numbers in self.numbers]


@dataclass(frozen=True, kw_only=True)
class Request:
    """The content of a batch: the same in every process.

    Attributes
    ----------
    keys
        Keys that were put before: the numbers below this.
    rows
        Rows of each table.
    new
        True if each row has a new key. Otherwise a tenth of the rows have new keys, and the others
        are drawn from all keys.
    """

    index: int
    keys: int
    rows: int
    new: bool

    @property
    def keys_after(self) -> int:
        """Number of keys after the batch."""
        return self.keys + (self.rows if self.new else self.rows // _NEW_SHARE)

    def batch(self, tables: int) -> Batch:
        """Return the rows."""
        added = np.arange(self.keys, self.keys_after, dtype=np.int64)
        random = np.random.default_rng((_SEED, self.index))
        known = self.rows - len(added)
        drawn = [random.integers(0, max(1, self.keys), known) for _ in range(tables)]
        return Batch(
            index=self.index, numbers=[np.concatenate([numbers, added]) for numbers in drawn]
        )


def write(folder: Path, tables: Sequence[str], batch: Batch) -> None:
    """Add the files of a batch to the sources, one for each table.

    No trigger finds some of them and not the others, see `TRIGGER_S`.
    """
    names = []
    for table, numbers, amounts in zip(tables, batch.numbers, batch.amounts, strict=True):
        source = folder / table
        source.mkdir(parents=True, exist_ok=True)
        staged = folder / f"{table}.staged"
        pq.write_table(pa.table({"number": numbers, "amount": amounts}), staged)
        # Spark's file source takes files in the order of their modification times.
        seconds = _FIRST_FILE_SECONDS + batch.index
        os.utime(staged, (seconds, seconds))
        names.append((staged, source / f"part-{batch.index:05d}.parquet"))
    if len(names) > 1:
        # Half an interval after a trigger, and as long before the next one.
        time.sleep((TRIGGER_S / 2 - time.time()) % TRIGGER_S)
    for staged, name in names:
        staged.rename(name)


@dataclass(frozen=True, kw_only=True)
class Emitted:
    """Number of the rows that a batch put out, and the sum of their column ``check``."""

    rows: int
    check: int


class Expected(ABC):
    """The output that a query must have, batch by batch, from the first of its checkpoint on."""

    @abstractmethod
    def after(self, batch: Batch) -> Emitted:
        """Take in the next batch, and say what it must put out."""

    @abstractmethod
    def state_rows(self) -> int:
        """Return the number of keys in the state by now, as the progress has them."""


class ByKey:
    """A number for each key, 0 at first."""

    def __init__(self) -> None:
        self._values: Numbers = np.zeros(1, dtype=np.int64)

    def __getitem__(self, keys: Numbers) -> Numbers:
        self._grow(keys)
        found: Numbers = self._values[keys]
        return found

    def add(self, keys: Numbers, values: Numbers | int) -> None:
        """Add to the numbers of keys, which may repeat."""
        self._grow(keys)
        np.add.at(self._values, keys, values)

    def positive(self) -> int:
        """Return for how many keys the number is not 0."""
        return int(np.count_nonzero(self._values))

    def total(self) -> int:
        """Return the sum of all."""
        return int(self._values.sum())

    def _grow(self, keys: Numbers) -> None:
        needed = int(keys.max(initial=0)) + 1
        if needed > len(self._values):
            grown = np.zeros(needed + needed // 4, dtype=np.int64)
            grown[: len(self._values)] = self._values
            self._values = grown


class Totals(Expected):
    """Count and sum of amounts of every key that a batch has rows of; ``check`` is both added."""

    def __init__(self) -> None:
        self._counts, self._sums = ByKey(), ByKey()

    def after(self, batch: Batch) -> Emitted:
        (numbers,), (amounts,) = batch.numbers, batch.amounts
        return self.of_keys(numbers, amounts)

    def of_keys(self, keys: Numbers, amounts: Numbers) -> Emitted:
        """Take in rows of these keys."""
        self._counts.add(keys, 1)
        self._sums.add(keys, amounts)
        touched = np.unique(keys)
        check = self._counts[touched].sum() + self._sums[touched].sum()
        return Emitted(rows=len(touched), check=int(check))

    def state_rows(self) -> int:
        return self._counts.positive()


class TotalsOfGroups(Totals):
    """The same of groups of `ROWS_OF_GROUP` numbers that follow each other."""

    def after(self, batch: Batch) -> Emitted:
        (numbers,), (amounts,) = batch.numbers, batch.amounts
        return self.of_keys(numbers // ROWS_OF_GROUP, amounts)


class AllRows(Expected):
    """All rows of all tables; ``check`` is their number. There is no state."""

    def after(self, batch: Batch) -> Emitted:
        return Emitted(
            rows=sum(len(numbers) for numbers in batch.numbers),
            check=sum(int(numbers.sum()) for numbers in batch.numbers),
        )

    def state_rows(self) -> int:
        return 0


class FirstRows(Expected):
    """One row of every key that no batch before had; ``check`` is its number."""

    def __init__(self) -> None:
        self._seen = ByKey()

    def after(self, batch: Batch) -> Emitted:
        (numbers,) = batch.numbers
        found = np.unique(numbers)
        fresh = found[self._seen[found] == 0]
        self._seen.add(fresh, 1)
        return Emitted(rows=len(fresh), check=int(fresh.sum()))

    def state_rows(self) -> int:
        return self._seen.positive()


class Pairs(Expected):
    """All pairs of rows that a batch completes; ``check`` is the sum of their amounts."""

    def __init__(self) -> None:
        self._counts = (ByKey(), ByKey())
        self._sums = (ByKey(), ByKey())

    def after(self, batch: Batch) -> Emitted:
        return self.of_sides(batch.numbers, batch.amounts)

    def of_sides(self, numbers: Sequence[Numbers], amounts: Sequence[Numbers]) -> Emitted:
        """Take in the rows of both sides."""
        touched = np.unique(np.concatenate(numbers))
        rows_before, check_before = self._pairs(touched)
        for side in range(2):
            self._counts[side].add(numbers[side], 1)
            self._sums[side].add(numbers[side], amounts[side])
        rows, check = self._pairs(touched)
        return Emitted(rows=rows - rows_before, check=check - check_before)

    def _pairs(self, keys: Numbers) -> tuple[int, int]:
        left, right = (counts[keys] for counts in self._counts)
        left_sums, right_sums = (sums[keys] for sums in self._sums)
        return int((left * right).sum()), int((left_sums * right + right_sums * left).sum())

    def state_rows(self) -> int:
        return sum(counts.total() for counts in self._counts)


class PairsWithFew(Pairs):
    """The same where the second side has only amounts that `ROWS_OF_FEW` divides."""

    def after(self, batch: Batch) -> Emitted:
        is_kept = batch.amounts[1] % ROWS_OF_FEW == 0
        kept = (batch.numbers[0], batch.numbers[1][is_kept])
        return self.of_sides(kept, (batch.amounts[0], batch.amounts[1][is_kept]))
