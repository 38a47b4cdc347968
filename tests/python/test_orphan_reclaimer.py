"""The driver's clean-up: files of managers that are gone go once no checkpoint needs them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import FencedError, Owner, SnapshotManager
from holdfast._core import (
    CheckpointMetadata,
    OperatorEntry,
    OrphanReclaimer,
    Piece,
    RegionEntry,
    SegmentRef,
    StateEntry,
)

PAYLOAD = b"state" * 8


def written(folder: Path, checkpoint: int) -> SegmentRef:
    """Return a segment in a file of a manager that is gone."""
    with SnapshotManager(folder) as manager:
        return manager.append(Owner("sales", "count", "north"), checkpoint, PAYLOAD)


def checkpoint_of(id: int, ref: SegmentRef) -> CheckpointMetadata:
    piece = Piece(ref, 0, len(PAYLOAD))
    state = StateEntry("rows", "value", "|u1", (len(PAYLOAD),), pieces=[piece])
    entry = RegionEntry("north", origin=id, operators=[OperatorEntry("count", [state])])
    return CheckpointMetadata(id, id, "checkpoint", 0, b"", [entry])


def files(folder: Path) -> set[str]:
    """Return the names of files with segments."""
    return {path.name for path in folder.iterdir() if not path.name.endswith("-00000000.hf")}


def test_what_no_retained_checkpoint_refers_to_is_deleted(tmp_path: Path) -> None:
    first, second, orphan = (written(tmp_path, id) for id in (1, 2, 3))
    reclaimer = OrphanReclaimer(tmp_path, "sales")
    retained = [checkpoint_of(1, first), checkpoint_of(2, second)]
    done, wasteful = reclaimer.reclaim(retained, live_terms=set(), newest_term=0)
    # Their heads are larger than their payloads.
    assert wasteful
    assert set(wasteful) <= {first.file, second.file}
    assert done.startswith("deleted 1 files of ")
    assert files(tmp_path) == {first.file, second.file}
    assert orphan.file not in files(tmp_path)
    assert reclaimer.reclaim(retained, live_terms=set(), newest_term=0)[0] == ""
    reclaimer.reclaim(retained[1:], live_terms=set(), newest_term=0)
    assert files(tmp_path) == {second.file}


def test_files_of_living_managers_are_left_to_them(tmp_path: Path) -> None:
    ref = written(tmp_path, 1)
    reclaimer = OrphanReclaimer(tmp_path, "sales")
    assert reclaimer.reclaim([], live_terms={ref.term}, newest_term=ref.term) == ("", [])
    assert files(tmp_path) == {ref.file}


def test_nothing_is_deleted_once_another_application_writes(tmp_path: Path) -> None:
    reclaimer = OrphanReclaimer(tmp_path / "segments", "sales")
    ref = written(tmp_path / "segments", 1)
    with pytest.raises(FencedError, match=ref.file):
        reclaimer.reclaim([], live_terms=set(), newest_term=ref.term - 1)
    assert files(tmp_path / "segments") == {ref.file}


def test_nothing_is_deleted_while_a_segment_is_missing(tmp_path: Path) -> None:
    gone, orphan = written(tmp_path, 1), written(tmp_path, 2)
    (tmp_path / gone.file).unlink()
    reclaimer = OrphanReclaimer(tmp_path, "sales")
    with pytest.raises(FileNotFoundError, match="1 segments of retained checkpoints are missing"):
        reclaimer.reclaim([checkpoint_of(1, gone)], live_terms=set(), newest_term=0)
    assert files(tmp_path) == {orphan.file}
