"""Names of a sink's files inside its folder.

::

    <folder>/part-0000000042-JFK-3f0c....parquet                             of one region
    <folder>/part-0000000042-64-regions-9ad1....parquet                      of several
    <folder>/_holdfast/staged/0000000042/part-0000000042-JFK-3f0c....<nonce>  staged

Readers such as Spark and pyarrow.dataset skip names that begin with an underscore or a dot. A
staged name has no suffix of its format, for readers that look for one everywhere.
"""

from __future__ import annotations

import hashlib
import json
import re
import secrets
from collections.abc import Iterable, Sequence
from typing import Final

from holdfast._core import Staged

STAGED_FOLDER: Final = "_holdfast/staged"

#: Leases of the folder, on file systems without locks.
LEASES_FOLDER: Final = "_holdfast/leases"

_READABLE: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")
_STEM: Final = rf"part-(?P<attempt>\d{{10,}})-(?:{_READABLE.pattern}-)?[0-9a-f]{{20}}"
_TARGET: Final = re.compile(_STEM, re.ASCII)
_STAGED: Final = re.compile(
    rf"{STAGED_FOLDER}/(?P<folder>\d{{10,}})/(?P<stem>{_STEM})\.[0-9a-f]{{16}}", re.ASCII
)


def target_name(regions: Sequence[str], attempt: int, suffix: str) -> str:
    """Return the stable name of regions' published file. A region is in one file per attempt."""
    if len(regions) == 1:
        readable, named = regions[0], regions[0]
    else:
        readable, named = f"{len(regions)}-regions", json.dumps(regions)
    readable = f"{readable}-" if _READABLE.fullmatch(readable) else ""
    digest = hashlib.sha256(named.encode()).hexdigest()[:20]
    return f"part-{attempt:010d}-{readable}{digest}{suffix}"


def published_attempt(name: str, suffix: str) -> int | None:
    """Return the attempt that published a file of the folder; None if none of a pipeline did."""
    found = _TARGET.fullmatch(name.removesuffix(suffix)) if name.endswith(suffix) else None
    return int(found["attempt"]) if found is not None else None


def staged_name(regions: Sequence[str], attempt: int) -> str:
    """Return a name for a staged file that no other task will use.

    An abandoned task may run together with its successor. The acknowledged one counts.
    """
    stem = target_name(regions, attempt, suffix="")
    return f"{STAGED_FOLDER}/{attempt:010d}/{stem}.{secrets.token_hex(8)}"


def attempt_of(folder_name: str) -> int | None:
    """Return the attempt that a folder of staged files belongs to; None if to none."""
    return int(folder_name) if folder_name.isascii() and folder_name.isdecimal() else None


def own_target(path: str, suffix: str) -> str | None:
    """Return the final name of a staged file, or None if `staged_name` did not make its path."""
    found = _STAGED.fullmatch(path)
    if found is None or found["folder"] != found["attempt"]:
        return None
    return f"{found['stem']}{suffix}"


def own_files(root: object, staged: Iterable[Staged], suffix: str) -> list[tuple[str, str, int]]:
    """Return path, final name and size in bytes of staged files, each file once.

    Raises a ValueError if no stage makes a path or name: metadata may come from elsewhere.
    """
    files: dict[str, tuple[str, str, int]] = {}
    for one in staged:
        expected = own_target(one.path, suffix)
        if one.target != expected:
            form = f"{STAGED_FOLDER}/<attempt>/part-<attempt>-..."
            wanted, found = (form, one.path) if expected is None else (expected, one.target)
            raise ValueError(
                f"expected a path inside {root} such as a pipeline stages ({wanted}), found "
                f"{found!r}: the checkpoint's metadata is damaged or forged; nothing was published"
            )
        files[one.path] = (one.path, one.target, one.bytes)
    return list(files.values())


def output_id(checkpoint: int, staged: Iterable[Staged]) -> str:
    """Return a checkpoint output's identity: nonces keep it unique when a folder is copied."""
    named = json.dumps([checkpoint, *sorted(one.path for one in staged)])
    return hashlib.sha256(named.encode()).hexdigest()
