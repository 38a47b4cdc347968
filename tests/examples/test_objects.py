from __future__ import annotations

from pathlib import Path

from harness.objects import StateObjects, count_state_objects


def write(path: Path, size: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(b"x" * size)


def test_counts_state_files_and_keeps_hadoop_twins_apart(tmp_path: Path) -> None:
    write(tmp_path / "state/0/3/1.delta", 10)
    write(tmp_path / "state/0/3/.1.delta.crc", 4)
    write(tmp_path / "state/0/3/left-keyToNumValues/1.delta", 20)
    assert count_state_objects(tmp_path) == StateObjects(
        files=2, files_bytes=30, crc_files=1, crc_bytes=4
    )


def test_counts_checksum_objects_that_spark_writes_itself(tmp_path: Path) -> None:
    write(tmp_path / "state/0/3/1_a.changelog", 10)
    write(tmp_path / "state/0/3/1_a.changelog.crc", 5)
    assert count_state_objects(tmp_path).files == 2


def test_leaves_out_what_spark_writes_for_every_query(tmp_path: Path) -> None:
    for name in ("offsets/0", "commits/0", "sources/0/0", "metadata", ".metadata.crc"):
        write(tmp_path / name, 7)
    write(tmp_path / "state/0/_metadata/metadata", 7)
    write(tmp_path / "state/0/_metadata/v2/schema", 7)
    assert count_state_objects(tmp_path).files == 0


def test_charges_a_provider_for_files_beside_the_state_folder(tmp_path: Path) -> None:
    write(tmp_path / "shared/0/file", 11)
    write(tmp_path / "shared/0/offsets/file", 11)
    assert count_state_objects(tmp_path).files_bytes == 22
