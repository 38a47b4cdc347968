"""Versions of files that are JSON, or that only Python reads."""

from __future__ import annotations

from typing import Final

from holdfast._core import NewerFormatError

# Versions rise by one.
_VERSION_MAX: Final = 1_000


def require_known(what: str, version: int, newest: int) -> None:
    """Raise a NewerFormatError for content of a version after the newest that this build reads.

    `what` names content and place. A huge version is a ValueError: it must be damage.
    """
    if version > _VERSION_MAX:
        raise ValueError(f"{what}: {version} is no version")
    if version > newest:
        raise NewerFormatError(
            f"{what}: this build reads up to version {newest}, found {version}: a newer Holdfast "
            "wrote it, and it is intact. Upgrade Holdfast to read it"
        )
