"""Nothing in metadata is trusted as a path (R92): a savepoint may come from a stranger."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path

import pytest

import holdfast as hf
from holdfast._core import CheckpointMetadata, RegionEntry
from holdfast.cli.main import main
from holdfast.regions.sinks import BatchFunction, ParquetSink, Staged
from holdfast.regions.sinks.layout import STAGED_FOLDER, staged_name, target_name
from holdfast.regions.splits.assignment import Assignment
from holdfast.regions.splits.file_split import FileSplit
from support.regional.restorable import batches, open_pipeline, run

PLANTED = b"bytes of another folder"


@pytest.fixture
def old(tmp_path: Path) -> Path:
    """The checkpoint folder of a pipeline that published everything."""
    with open_pipeline(tmp_path, checkpoint="old") as query:
        run(query, batches(2))
    return tmp_path / "old"


@pytest.fixture
def victim(tmp_path: Path) -> Path:
    """Another folder that looks like that of a sink, with a staged file."""
    folder = tmp_path / "victim"
    file = folder / staged_name(["r00"], 3)
    file.parent.mkdir(parents=True)
    file.write_bytes(PLANTED)
    return folder


def forge(
    folder: Path, staged: Sequence[Staged] | None = None, **properties: str
) -> CheckpointMetadata:
    """Change what the latest checkpoint of a folder says, as its sender could."""
    id = CheckpointMetadata.list(folder / "metadata")[-1]
    metadata = CheckpointMetadata.read(folder / "metadata" / f"{id:016x}.hfc")
    regions = list(metadata.regions.values())
    if staged is not None:
        first = regions[0]
        regions[0] = RegionEntry(
            first.region, origin=first.origin, operators=first.operators, staged=list(staged)
        )
    forged = CheckpointMetadata(
        metadata.id,
        metadata.batch_id,
        metadata.kind,
        metadata.created_ms,
        metadata.topology,
        regions,
        coordinators=metadata.coordinators,
        finished_operators=metadata.finished_operators,
        properties={**metadata.properties, **properties},
    )
    CheckpointMetadata.delete(folder / "metadata", id)
    forged.write(folder / "metadata")
    return forged


def everything(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file()
    }


def staged_file(folder: Path, path: str) -> Staged:
    """Write a file where metadata will say that it was staged, and describe it."""
    file = folder / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(PLANTED)
    return Staged(path, target_name(["r00"], 3, ".parquet"), 1, len(PLANTED))


def test_output_is_published_in_no_folder_but_the_pipelines_own(
    tmp_path: Path, old: Path, victim: Path
) -> None:
    found = next(path for path in victim.rglob("*") if path.is_file())
    staged = Staged(
        str(found.relative_to(victim)), target_name(["r00"], 3, ".parquet"), 1, len(PLANTED)
    )
    forge(old, [staged], output=str(victim))
    before = everything(victim)
    with pytest.raises(ValueError, match="has not published"):
        open_pipeline(tmp_path, checkpoint="new", output="mine", restore=hf.restore(old))
    assert everything(victim) == before
    assert not (tmp_path / "new").exists()


def test_output_that_was_published_elsewhere_is_not_asked_for_again(
    tmp_path: Path, old: Path
) -> None:
    with open_pipeline(
        tmp_path, checkpoint="new", output="elsewhere", restore=hf.restore(old)
    ) as query:
        run(query, batches(3), first=2)


# As `staged_name` makes it, but the same in every process that collects the tests.
GOOD = f"{staged_name(['r00'], 3).rpartition('.')[0]}.0123456789abcdef"
STEM = target_name(["r00"], 3, "")


@pytest.mark.parametrize(
    ("path", "target"),
    [
        (GOOD, "part-0000000003-r00-../../planted"),
        (GOOD, "/etc/planted.parquet"),
        (GOOD, "sub/planted.parquet"),
        (GOOD, "planted.parquet"),
        (GOOD, "_SUCCESS"),
        (GOOD, target_name(["r00"], 2, ".parquet")),
        (GOOD, f"{STEM}.parquet\n"),
        ("../victim/secret", f"{STEM}.parquet"),
        ("/etc/passwd", f"{STEM}.parquet"),
        ("secret", f"{STEM}.parquet"),
        (f"{STAGED_FOLDER}/secret", f"{STEM}.parquet"),
        (f"{STAGED_FOLDER}/0000000003/../secret", f"{STEM}.parquet"),
        (f"{STAGED_FOLDER}/0000000003/{STEM}", f"{STEM}.parquet"),
        (f"{STAGED_FOLDER}/0000000004/{STEM}.0123456789abcdef", f"{STEM}.parquet"),
        (f"./{GOOD}", f"{STEM}.parquet"),
    ],
)
def test_only_names_that_the_sink_generates_are_published(
    tmp_path: Path, path: str, target: str
) -> None:
    sink = ParquetSink(tmp_path / "out")
    good = staged_file(tmp_path / "out", GOOD)
    with pytest.raises(ValueError, match="expected a path inside"):
        sink.commit(1, [Staged(path, target, 1, good.bytes)])
    assert [file.name for file in tmp_path.rglob("*") if file.is_file()] == [Path(GOOD).name]


@pytest.mark.parametrize("linked", ["_holdfast", STAGED_FOLDER, str(Path(GOOD).parent), GOOD])
def test_links_out_of_the_staging_folder_are_not_followed(
    tmp_path: Path, victim: Path, linked: str
) -> None:
    staged = staged_file(tmp_path / "moved", GOOD)
    (tmp_path / "out" / linked).parent.mkdir(parents=True)
    (tmp_path / "out" / linked).symlink_to(tmp_path / "moved" / linked)
    before = everything(tmp_path / "moved")
    sink = ParquetSink(tmp_path / "out")
    with pytest.raises(OSError, match="link"):
        sink.commit(1, [staged])
    sink.sweep(10)
    assert everything(tmp_path / "moved") == before
    assert not list((tmp_path / "out").glob("*.parquet"))


def test_a_sweep_removes_nothing_that_no_pipeline_staged(tmp_path: Path) -> None:
    sink = ParquetSink(tmp_path / "out")
    staged = staged_file(tmp_path / "out", GOOD)
    notes = (tmp_path / "out" / GOOD).with_name("notes")
    notes.write_text("mine")
    sink.sweep(10)
    assert not (tmp_path / "out" / staged.path).exists()
    assert notes.read_text() == "mine"


def test_what_lies_in_a_folder_for_a_function_is_not_followed_out_of_it(
    tmp_path: Path, victim: Path
) -> None:
    (tmp_path / "output" / "_holdfast").mkdir(parents=True)
    (tmp_path / "output" / STAGED_FOLDER).symlink_to(victim / STAGED_FOLDER)
    found = next(path for path in victim.rglob("*") if path.is_file())
    staged = Staged(str(found.relative_to(victim)), f"{STEM}.parquet", 1, len(PLANTED))
    got: list[object] = []
    function = BatchFunction(tmp_path / "mine", lambda paths, _: got.extend(paths))
    with pytest.raises(OSError, match="link"):
        function.take_over(tmp_path / "output", 3, [staged])
    assert got == []
    assert found.read_bytes() == PLANTED


def test_a_savepoint_with_links_or_pipes_is_not_copied(tmp_path: Path, old: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir()
    (secret / "0").write_text("secret")
    for plant in (
        lambda at: at.symlink_to(secret),
        lambda at: (at.mkdir(), (at / "offsets").symlink_to(secret)),
        lambda at: (at.mkdir(), os.mkfifo(at / "metadata")),
    ):
        plant(old / "spark")
        with pytest.raises(OSError, match="spark"):
            open_pipeline(tmp_path, checkpoint="new", restore=hf.restore(old))
        assert not (tmp_path / "new").exists()
        if (old / "spark").is_symlink():
            (old / "spark").unlink()
        else:
            for path in (old / "spark").iterdir():
                path.unlink()
            (old / "spark").rmdir()


@pytest.mark.parametrize(
    "path", ["/etc/passwd", "../secret.parquet", "a/../../secret", "", "_hidden", "a/.hidden"]
)
def test_splits_of_files_that_the_source_does_not_list_are_refused(
    tmp_path: Path, path: str
) -> None:
    assignment = Assignment()
    assignment.add([FileSplit(path="a", file_bytes=1, modified_ns=1, size=1)])
    forged = json.loads(assignment.encode())
    forged["pool"][0]["path"] = path
    with pytest.raises(ValueError, match="below the folder of the source"):
        Assignment.decode(json.dumps(forged).encode())


def test_names_in_metadata_cannot_control_a_terminal(
    old: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    forge(old, restored_from="/a\x1b]0;b", restored_checkpoint="1\x1b[2J")
    main(["show", str(old)])
    assert "\x1b" not in capsys.readouterr().err
