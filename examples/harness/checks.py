"""The checks of the demo: findings in words, and the number of failed checks."""

from __future__ import annotations

from harness.equality import Comparison
from harness.screen import Screen

_DIGEST_SHOWN = 16
BATCH_COMPUTATION = "the batch computation"


class Checks:
    """Prints the outcome of every check and counts those that failed."""

    def __init__(self, screen: Screen) -> None:
        self._screen = screen
        self.failed = 0

    def check(self, text: str, *, good: bool) -> None:
        """Note the outcome of one check."""
        self.failed += not good
        self._screen.verdict(text, good=good)


def comparison_text(found: Comparison, *, to: str = BATCH_COMPUTATION) -> str:
    """Say in one line, or with the first difference, how a comparison with `to` ended."""
    if found.equal:
        return (
            f"{found.rows_actual:,} rows equal {to}, sha256 {found.digest_actual[:_DIGEST_SHOWN]}"
        )
    return (
        f"{found.rows_actual:,} rows (sha256 {found.digest_actual[:_DIGEST_SHOWN]}) differ from "
        f"the {found.rows_expected:,} rows of {to} "
        f"(sha256 {found.digest_expected[:_DIGEST_SHOWN]}): {found.difference}"
    )
