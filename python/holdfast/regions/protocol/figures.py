"""What the operators of a region did in an attempt, and its form in a region's answer.

The bytes are a head, integers and floats. The head is the same for all regions whose operators have
metrics of the same names: number of operators u16, length of the names u32, and the names, a JSON
document in UTF-8 (nothing if there are none): of each operator the names of its counters and of its
gauges. The integers, i64, are of each operator rows in, rows out and nanoseconds at work, then its
counters. The floats, f64, are of each gauge, operator by operator, minimum, maximum and sum of its
values, and how many there are. Numbers are little-endian. They live for one attempt only and are
never stored.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Final, NamedTuple

_HEAD: Final = struct.Struct("<HI")
_NUMBER_BYTES: Final = 8

#: Integers of every operator, before its counters.
BUILT_IN: Final = ("rows_in", "rows_out", "busy_ns")

#: Floats of a gauge.
GAUGE_VALUES: Final = 4

#: What an integer is at most; a counter beyond stays there.
MAX_COUNT: Final = 2**63 - 1


class GaugeFigures(NamedTuple):
    """What gauges of one name were at, in several instances.

    Parameters
    ----------
    min, max, sum : float
        Of their values.
    instances : int
        How many had one.
    """

    min: float
    max: float
    sum: float
    instances: int

    @classmethod
    def of(cls, value: float) -> GaugeFigures:
        """Return the figures of one instance."""
        return cls(value, value, value, 1)

    def plus(self, other: GaugeFigures) -> GaugeFigures:
        """Return the figures of both."""
        return GaugeFigures(
            min(self.min, other.min),
            max(self.max, other.max),
            self.sum + other.sum,
            self.instances + other.instances,
        )


_NO_COUNTERS: Final[Mapping[str, int]] = {}
_NO_GAUGES: Final[Mapping[str, GaugeFigures]] = {}


class OperatorFigures(NamedTuple):
    """What instances of one operator did in an attempt.

    Parameters
    ----------
    rows_in, rows_out : int
        Rows that they took in and put out.
    busy_ns : int
        Nanoseconds in their code.
    counters : mapping of str to int
        What their counters were raised by.
    gauges : mapping of str to GaugeFigures
        What their gauges are at, without those that have no value.
    """

    rows_in: int = 0
    rows_out: int = 0
    busy_ns: int = 0
    counters: Mapping[str, int] = _NO_COUNTERS
    gauges: Mapping[str, GaugeFigures] = _NO_GAUGES

    def plus(self, other: OperatorFigures) -> OperatorFigures:
        """Return what both did."""
        counters, gauges = dict(self.counters), dict(self.gauges)
        for name, count in other.counters.items():
            counters[name] = counters.get(name, 0) + count
        for name, gauge in other.gauges.items():
            gauges[name] = gauges[name].plus(gauge) if name in gauges else gauge
        return OperatorFigures(
            self.rows_in + other.rows_in,
            self.rows_out + other.rows_out,
            self.busy_ns + other.busy_ns,
            counters,
            gauges,
        )


def encode(operators: Sequence[OperatorFigures]) -> bytes:
    """Return the figures of a region, operator by operator in the order of the pipeline."""
    if not any(one.counters or one.gauges for one in operators):
        # As in most pipelines, for every region and attempt.
        return _plain(len(operators)).pack(
            len(operators), 0, *(number for one in operators for number in one[:3])
        )
    integers: list[int] = []
    floats: list[float] = []
    names: list[tuple[list[str], list[str]]] = []
    for one in operators:
        integers += one[:3]
        counters, gauges = sorted(one.counters), sorted(one.gauges)
        if counters:
            integers += (min(one.counters[name], MAX_COUNT) for name in counters)
        for name in gauges:
            floats += one.gauges[name]
        names.append((counters, gauges))
    named = json.dumps(names, separators=(",", ":")).encode()
    head = _HEAD.pack(len(operators), len(named)) + named
    return head + struct.pack(f"<{len(integers)}q{len(floats)}d", *integers, *floats)


@cache
def _plain(operators: int) -> struct.Struct:
    """Return the form of figures without metrics of their own."""
    return struct.Struct(f"{_HEAD.format}{len(BUILT_IN) * operators}q")


def head_of(data: bytes) -> bytes:
    """Return the head, by which figures may be put together.

    Raises
    ------
    ValueError
        If these are no figures.
    """
    if len(data) < _HEAD.size:
        raise ValueError(f"figures have at least {_HEAD.size} bytes, these have {len(data)}")
    _, length = _HEAD.unpack_from(data)
    return data[: _HEAD.size + length]


@dataclass(frozen=True)
class Layout:
    """Which figures follow a head.

    Parameters
    ----------
    counters, gauges : tuple of tuple of str
        Their names, operator by operator.
    """

    counters: tuple[tuple[str, ...], ...]
    gauges: tuple[tuple[str, ...], ...]

    @classmethod
    def of(cls, head: bytes) -> Layout:
        """Read a head.

        Raises
        ------
        ValueError
            If it is none.
        """
        if len(head) < _HEAD.size:
            raise ValueError(f"figures have at least {_HEAD.size} bytes, these have {len(head)}")
        operators, length = _HEAD.unpack_from(head)
        if len(head) != _HEAD.size + length:
            raise ValueError(
                f"names of figures have {length} bytes, found {len(head) - _HEAD.size}"
            )
        if not length:
            return cls(((),) * operators, ((),) * operators)
        names = json.loads(head[_HEAD.size :])
        if len(names) != operators:
            raise ValueError(f"names of {operators} operators are missing, found {len(names)}")
        return cls(
            tuple(tuple(counters) for counters, _ in names),
            tuple(tuple(gauges) for _, gauges in names),
        )

    @property
    def integers(self) -> int:
        """How many integers there are."""
        return sum(len(BUILT_IN) + len(names) for names in self.counters)

    @property
    def row_bytes(self) -> int:
        """Bytes of what follows the head."""
        gauges = sum(map(len, self.gauges))
        return _NUMBER_BYTES * (self.integers + GAUGE_VALUES * gauges)
