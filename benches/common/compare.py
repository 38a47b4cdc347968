"""``benches/run.py compare BEFORE AFTER``: what two result files say of each other.

Where both have ratios to another provider, these are compared: a slow machine changes both sides of
a ratio. Otherwise the figures are, which means something on the same machine alone.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from common.rounds import Metric
from common.targets import title_of
from harness.figures import Spread
from harness.screen import Screen

BETTER, WORSE, NOISE = "better", "worse", "within the noise"

_COLUMNS = ("metric", "provider", "of", "before", "after", "after / before", "")


class NotComparableError(ValueError):
    """The files are not results of one benchmark; the message says what to do."""


@dataclass(frozen=True, kw_only=True)
class Change:
    """How one metric of one provider changed.

    Attributes
    ----------
    base
        The provider that both are ratios to; None for the figures themselves.
    """

    metric: Metric
    provider: str
    base: str | None
    before: Spread
    after: Spread

    @property
    def verdict(self) -> str:
        """The side on which the ranges of before and after lie, if they do not overlap."""
        if self.after.low > self.before.high:
            return BETTER if self.metric.more_is_better else WORSE
        if self.after.high < self.before.low:
            return WORSE if self.metric.more_is_better else BETTER
        return NOISE

    def cells(self) -> list[str]:
        """Return the line of a table."""
        quotient = self.after.median / self.before.median if self.before.median else None
        return [
            self.metric.title,
            title_of(self.provider),
            "-" if self.base is None else title_of(self.base),
            self._text(self.before),
            self._text(self.after),
            "-" if quotient is None else f"{quotient:.3f}",
            self.verdict,
        ]

    def _text(self, spread: Spread) -> str:
        text = self.metric.text if self.base is None else "{:.3f}".format
        return f"{text(spread.median)} ({text(spread.low)}..{text(spread.high)})"


def read(path: Path) -> Mapping[str, Any]:
    """Read a result file.

    Raises
    ------
    NotComparableError
        If it is none.
    """
    try:
        content = json.loads(path.read_text())
        if not {"benchmark", "metrics", "summary", "plan"} <= content.keys():
            raise ValueError("it has no summary of metrics")
    except (OSError, ValueError, AttributeError) as error:
        raise NotComparableError(
            f"{path} is no result of benches/run.py, or of an older one: {error}"
        ) from error
    return content  # type: ignore[no-any-return]


def changes(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[Change]:
    """Yield what both results have.

    Raises
    ------
    NotComparableError
        If they are of two benchmarks.
    """
    if before["benchmark"] != after["benchmark"]:
        raise NotComparableError(
            f"expected two results of one benchmark, found {before['benchmark']} and "
            f"{after['benchmark']}"
        )
    metrics = {one["name"]: Metric(**one) for one in after["metrics"]}
    known = {(one["metric"], one["provider"]): one for one in before["summary"]}
    for found in after["summary"]:
        old = known.get((found["metric"], found["provider"]))
        if old is None:
            continue
        bases = [
            base
            for base, ratio in found["ratios"].items()
            if ratio and old["ratios"].get(base) and base != found["provider"]
        ]
        for base in bases or [None]:
            yield Change(
                metric=metrics[found["metric"]],
                provider=found["provider"],
                base=base,
                before=_spread(old, base),
                after=_spread(found, base),
            )


def _spread(line: Mapping[str, Any], base: str | None) -> Spread:
    return Spread(**(line["spread"] if base is None else line["ratios"][base]))


def differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> Iterator[str]:
    """Yield what was not the same when both were measured."""
    for part in ("versions", "machine", "plan"):
        if before.get(part) != after.get(part):
            yield part


def show(found: Sequence[Change], screen: Screen) -> None:
    """Print a line for each."""
    screen.table(_COLUMNS, [change.cells() for change in found])


def main(arguments: Sequence[str]) -> int:
    """Compare two result files; the exit status is 1 if something got worse."""
    parser = argparse.ArgumentParser(prog="benches/run.py compare", description=__doc__)
    parser.add_argument("before", type=Path)
    parser.add_argument("after", type=Path)
    options = parser.parse_args(arguments)
    screen = Screen()
    try:
        before, after = read(options.before), read(options.after)
        found = list(changes(before, after))
    except NotComparableError as error:
        parser.error(str(error))
    show(found, screen)
    for part in differences(before, after):
        screen.say(f"not the same in both: {part}")
    worse = sum(change.verdict == WORSE for change in found)
    screen.verdict(
        f"{worse} of {len(found)} got worse beyond the noise: ranges over the rounds do not "
        "overlap",
        good=not worse,
    )
    return 1 if worse else 0
