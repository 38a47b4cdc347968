"""What a newer Holdfast wrote is refused as that, intact, and without the advice to go back."""

from __future__ import annotations

import json
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

import holdfast as hf
from holdfast._core import CheckpointMetadata, CommitId, chunk_digests
from holdfast.regions.sinks.kafka_marker import Marker
from holdfast.regions.sinks.owner import OWNER_FILE
from support.commands import run as command
from support.newer import newer
from support.regional.pipelines import expected, output_of
from support.regional.restorable import batches, open_pipeline, run

NEWER = "a newer Holdfast wrote it, and it is intact. Upgrade Holdfast"


def content_of(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def metadata_file(path: Path, checkpoint: int) -> Path:
    return path / "ckpt" / "metadata" / f"{checkpoint:016x}.hfc"


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A pipeline after three batches; its latest checkpoint has the id 4."""
    with open_pipeline(tmp_path) as query:
        run(query, batches(3))
    return tmp_path


@pytest.mark.parametrize("checkpoint", [4, 3])
def test_a_start_on_newer_metadata_says_so_and_goes_on_once_holdfast_is_upgraded(
    path: Path, checkpoint: int
) -> None:
    file = metadata_file(path, checkpoint)
    whole = file.read_bytes()
    file.write_bytes(newer(whole))
    before = content_of(path)
    starts: list[Callable[[], object]] = [
        partial(open_pipeline, path),
        partial(open_pipeline, path, verify_state=False),
    ]
    if checkpoint == 4:
        origin = hf.restore(path / "ckpt")
        starts += [partial(open_pipeline, path, checkpoint="b", output="b-out", restore=origin)]
    for start in starts:
        with pytest.raises(hf.NewerFormatError, match=NEWER) as raised:
            start()
        assert str(file) in str(raised.value)
        assert "checkpoint_id" not in str(raised.value)
        assert {file: content_of(path)[file] for file in before} == before
    file.write_bytes(whole)
    with open_pipeline(path) as query:
        run(query, batches(4), first=3)
    assert output_of(path / "out") == expected(batches(4))


def test_who_asks_for_an_older_checkpoint_may_go_back_behind_a_newer_holdfast(path: Path) -> None:
    file = metadata_file(path, 4)
    file.write_bytes(newer(file.read_bytes()))
    with open_pipeline(path, checkpoint_id=3) as query:
        run(query, batches(3), first=2)
    assert output_of(path / "out") == expected(batches(3))


@pytest.mark.parametrize(
    "arguments", [["show"], ["show", "--id", 4], ["show", "--details"], ["verify"]]
)
def test_commands_do_not_call_newer_metadata_damaged(
    path: Path,
    arguments: list[object],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(path)
    file = metadata_file(path, 4)
    file.write_bytes(newer(file.read_bytes()))
    status, lines, err = command(capsys, *arguments, path / "ckpt")
    assert (status, lines) == (1, [])
    assert str(file) in err
    assert NEWER in err
    assert "damaged" not in err


def test_a_segment_of_a_newer_holdfast_is_not_damaged(path: Path) -> None:
    metadata = CheckpointMetadata.read(metadata_file(path, 4))
    owner, _, ref = metadata.segments("pipeline")[0]
    file = path / "ckpt" / "segments" / ref.file
    file.write_bytes(newer(file.read_bytes(), ref.offset))
    stored = file.read_bytes()[ref.offset : ref.offset + ref.length]
    written = hf.SegmentRef.from_bytes(ref.to_bytes()[:28] + chunk_digests(stored, ref.length))
    with hf.SnapshotManager(path / "ckpt" / "segments") as manager:
        with pytest.raises(hf.NewerFormatError, match=NEWER) as raised:
            manager.read(written, owner)
        assert ref.file in str(raised.value)


def test_the_output_folder_of_a_newer_holdfast_is_not_taken(path: Path) -> None:
    file = path / "out" / OWNER_FILE
    whole = file.read_bytes()
    file.write_text(json.dumps({**json.loads(whole), "version": 2}))
    before = content_of(path)
    with pytest.raises(hf.NewerFormatError, match=NEWER):
        open_pipeline(path)
    assert content_of(path) == before
    file.write_bytes(whole)
    open_pipeline(path).close()


def test_ids_of_stores_and_marks_in_kafka_of_a_newer_holdfast_are_named() -> None:
    with pytest.raises(hf.NewerFormatError, match=NEWER):
        CommitId.parse("hf3-AAAA")
    with pytest.raises(NotImplementedError, match="was not written by Holdfast"):
        CommitId.parse("6f1c2b9e-uuid")
    with pytest.raises(hf.NewerFormatError, match=NEWER):
        Marker.decode('{"version":2}', "group")
