"""Modes of what pipelines make on local disks, where Hadoop has another umask than the process."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

import holdfast as hf
from holdfast.files import modes
from support.regional.restorable import batches, open_pipeline, run


@pytest.fixture
def process_umask() -> Iterator[int]:
    before = os.umask(0o022)
    yield 0o022
    assert os.umask(before) == 0o022, "it is the process's own"
    modes.follow(None)


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def require_modes(root: Path, umask: int) -> None:
    for path in root.rglob("*"):
        rights = 0o777 if path.is_dir() else 0o666
        assert oct(mode_of(path) & 0o777) == oct(rights & ~umask), path


@pytest.mark.parametrize("umask", [0o002, 0o077, 0o027, None])
def test_a_pipeline_and_what_is_made_of_it_follow_the_umask(
    tmp_path: Path, umask: int | None, process_umask: int
) -> None:
    modes.follow(umask)
    made = tmp_path / "made"
    made.mkdir()
    with open_pipeline(made / "new") as query:
        run(query, batches(2))
    origin = hf.restore(made / "new" / "ckpt")
    with open_pipeline(made, checkpoint="a/branch", output="b/out", restore=origin) as query:
        run(query, batches(3), first=2)
    with open_pipeline(made / "new", checkpoint_id=2) as query:
        run(query, batches(2), first=1)
    require_modes(made, process_umask if umask is None else umask)


def test_a_folder_of_a_group_stays_one(tmp_path: Path, process_umask: int) -> None:
    modes.follow(0o002)
    tmp_path.chmod(0o2775)
    with open_pipeline(tmp_path) as query:
        run(query, batches(1))
    for path in tmp_path.rglob("*"):
        assert oct(mode_of(path)) == oct(0o2775 if path.is_dir() else 0o664), path
