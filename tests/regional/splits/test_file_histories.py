"""Random histories of an input folder: whatever happens to its files, no row comes out twice."""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

import holdfast
from holdfast.regions.checkpoint.read import checkpoint_ids
from support.regional.hooks import Hooks
from support.regional.split_files import open_pipeline, read_ids, write_ids

FILES = st.integers(0, 2)
STEPS = st.one_of(
    st.tuples(st.sampled_from(["replace", "touch", "remove", "cut", "put back"]), FILES),
    st.tuples(st.just("run"), st.sets(st.sampled_from(["r0", "r1", "r2"]), max_size=2)),
    st.tuples(st.sampled_from(["restart", "back"]), st.just(0)),
)


class Folder:
    """The files of a source, and what each of them held over time."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.versions: dict[int, list[tuple[range, bytes]]] = {}
        for number in range(3):
            self.act("replace", number)

    def file(self, number: int) -> Path:
        return self.path / "in" / f"{number}"

    def act(self, what: str, number: int) -> None:
        file, versions = self.file(number), self.versions.setdefault(number, [])
        if what == "replace":
            ids = write_ids(self.path / "new", 10 * number + len(versions))
            versions.append(
                (ids, (self.path / "new" / f"{ids[0] // 1000:04}.parquet").read_bytes())
            )
        if what in ("replace", "put back"):
            file.parent.mkdir(exist_ok=True)
            file.write_bytes(versions[-1][1])
        elif what == "cut":
            file.write_bytes(versions[-1][1][:-20])
        elif what == "touch" and file.exists():
            file.touch()
        elif what == "remove":
            file.unlink(missing_ok=True)


@settings(max_examples=25, deadline=None)
@given(steps=st.lists(STEPS, min_size=4, max_size=14), whole=st.booleans())
def test_no_row_is_lost_or_doubled(steps: list[tuple[str, Any]], whole: bool) -> None:
    hooks = Hooks()
    with tempfile.TemporaryDirectory() as name:
        path = Path(name)
        folder = Folder(path)
        source = {
            "on_bad_split": "skip",
            "splits_per_region": 1,
            "split_bytes": 1_000_000 if whole else 1,
        }

        def opened(checkpoint_id: int | None = None) -> holdfast.LocalQuery:
            return open_pipeline(
                path,
                source,
                checkpoint_id=checkpoint_id,
                hooks=hooks,
                max_failure_ratio=0.5,
                tolerable_failed_checkpoints=1000,
                max_region_staleness=(1000, timedelta(hours=1)),
            )

        query = opened()
        for what, how in steps:
            if what in ("restart", "back"):
                query.close()
                oldest = checkpoint_ids(path / "ckpt")[0]
                query = opened(oldest if what == "back" else None)
            elif what == "run":
                left = set(how)

                def trouble(region: str, ids: Sequence[int], left: set[str] = left) -> None:
                    if region in left:
                        left.discard(region)
                        raise RuntimeError(f"{region} is in trouble")

                hooks.on_rows = trouble
                query.run_available(max_batches=1)
            else:
                folder.act(what, how)
        hooks.calm()
        for number in range(3):
            folder.act("put back", number)
        for _ in range(3):
            query.run_available()
        query.finish()
        query.close()
        read = Counter(read_ids(path))
    assert max(read.values()) == 1
    for versions in folder.versions.values():
        found = [sum(value in read for value in ids) for ids, _ in versions]
        # One version was read as a whole; or part of one, and then it was replaced.
        assert sum(count > 0 for count in found) == 1
        assert found[-1] in (0, 40)
