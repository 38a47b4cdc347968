"""Metadata of checkpoints as a Python program sees it: values, and files in a real folder."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from holdfast import CorruptSegmentError, Owner, SegmentRef, SnapshotManager
from holdfast._core import (
    CheckpointMetadata,
    InFlight,
    OperatorEntry,
    Piece,
    RegionEntry,
    Staged,
    StateEntry,
)

REF = SegmentRef.from_bytes(bytes(range(44)))
OTHER = SegmentRef.from_bytes(bytes(range(1, 45)))
SUMS = StateEntry("sums", "array", "<f8", (10, 2), pieces=[Piece(REF, 8, 160)])
SEEN = StateEntry("seen", "value", "", (), inline=b"\x01")
STATS = OperatorEntry("stats", [SUMS, SEEN], finished=True)
OWED = InFlight(4, "input", 5, 70, ref=OTHER)
STAGED = Staged("out/_staged/1", "out/part-1", 3, 900)
EAST = RegionEntry("east", origin=4, operators=[STATS], in_flight=[OWED], staged=[STAGED])
WEST = RegionEntry("west", origin=3).fell_back(
    "disk full", 1000, [InFlight(4, "i", 1, 9, inline=b"r")]
)

VALUES: list[Any] = [
    Piece(REF, 8, 160),
    SUMS,
    SEEN,
    STATS,
    OWED,
    InFlight(4, "input", 5, 70, inline=b"rows"),
    STAGED,
    EAST,
    WEST,
]


def metadata(**changes: Any) -> CheckpointMetadata:
    arguments: dict[str, Any] = {
        "id": 4,
        "batch_id": 2,
        "kind": "checkpoint",
        "created_ms": 1_700_000_000_000,
        "topology": b"stats",
        "regions": [WEST, EAST],
        "coordinators": {"source": b"splits"},
        "consecutive_regional": 1,
        "force_global": True,
        "finished_operators": ["stats"],
        "properties": {"pipeline": "sales"},
    }
    return CheckpointMetadata(**(arguments | changes))


# --- values -------------------------------------------------------------------------------------


@pytest.mark.parametrize("value", [*VALUES, metadata()], ids=lambda value: type(value).__name__)
def test_values_compare_hash_and_pickle_by_content(value: Any) -> None:
    same = pickle.loads(pickle.dumps(value))  # noqa: S301
    assert same == value
    assert same is not value
    assert len({same, value}) == 1
    assert all(value != other for other in [*VALUES, REF, None] if other is not value)


@pytest.mark.parametrize(
    "value",
    [SEEN, STAGED, InFlight(4, "it's", 5, 70, inline=b"rows"), OperatorEntry("op", [SEEN]), WEST],
    ids=lambda value: type(value).__name__,
)
def test_representations_evaluate(value: Any) -> None:
    assert eval(repr(value)) == value  # noqa: S307


def test_values_cannot_be_changed() -> None:
    for value, name in [(SUMS, "dtype"), (EAST, "origin"), (OWED, "rows"), (metadata(), "id")]:
        with pytest.raises(AttributeError):
            setattr(value, name, 7)
    regions = metadata().regions
    regions.clear()
    assert len(metadata().regions) == 2


def test_values_say_what_they_were_made_of() -> None:
    (piece,) = SUMS.pieces
    assert (piece.ref, piece.payload_offset, piece.length) == (REF, 8, 160)
    assert (SUMS.name, SUMS.kind, SUMS.dtype, SUMS.shape) == ("sums", "array", "<f8", (10, 2))
    assert (SUMS.inline, SEEN.pieces, SEEN.inline) == (None, (), b"\x01")
    assert (STATS.name, STATS.states, STATS.finished) == ("stats", (SUMS, SEEN), True)
    assert (OWED.created, OWED.channel, OWED.rows, OWED.bytes) == (4, "input", 5, 70)
    assert (OWED.ref, OWED.inline) == (OTHER, None)
    assert (STAGED.path, STAGED.target) == ("out/_staged/1", "out/part-1")
    assert (STAGED.rows, STAGED.bytes) == (3, 900)
    assert (EAST.region, EAST.origin, EAST.operators) == ("east", 4, (STATS,))
    assert (EAST.in_flight, EAST.staged, EAST.in_flight_bytes) == ((OWED,), (STAGED,), 70)
    assert (EAST.finished, EAST.failed, EAST.fallbacks) == (False, False, 0)
    assert (EAST.stale_since_ms, EAST.cause) == (None, "")


def test_an_acknowledged_entry_survives_its_bytes() -> None:
    assert RegionEntry.from_bytes(EAST.to_bytes()) == EAST
    with pytest.raises(ValueError, match="entry of a region"):
        RegionEntry.from_bytes(EAST.to_bytes()[:-1])


def test_a_region_names_its_segments() -> None:
    assert EAST.refs() == [("stats", "sums", REF), ("in-flight", "4", OTHER)]


def test_a_fallback_keeps_origin_and_state_and_owes_more() -> None:
    more = InFlight(5, "input", 2, 30, inline=b"more")
    once = EAST.fell_back("slow disk", 1000, (more,))
    twice = once.fell_back("no disk", 2000, [])
    assert (once.origin, once.operators, once.staged) == (4, (STATS,), ())
    assert (once.in_flight, once.in_flight_bytes) == ((OWED, more), 100)
    assert (once.failed, once.fallbacks, once.stale_since_ms) == (True, 1, 1000)
    assert (twice.fallbacks, twice.stale_since_ms, twice.cause) == (2, 1000, "no disk")
    assert (EAST.failed, EAST.fallbacks) == (False, 0)


def test_an_idle_region_keeps_all_but_what_it_staged() -> None:
    carried = EAST.carried()
    assert (carried.staged, carried.origin, carried.in_flight) == ((), 4, (OWED,))
    assert carried == RegionEntry("east", origin=4, operators=[STATS], in_flight=[OWED])


WRONG: dict[str, tuple[Callable[[], Any], str]] = {
    "offset": (lambda: Piece(REF, -1, 0), "payload_offset=-1"),
    "length": (lambda: Piece(REF, 0, -1), "length=-1"),
    "kind": (lambda: StateEntry("s", "map", "", ()), "kind='map'.*array, value, list"),  # type: ignore[arg-type]
    "dtype": (lambda: StateEntry("s", "array", "float64", ()), '"<f8", found "float64"'),
    "objects": (lambda: StateEntry("s", "value", "|O", ()), 'found "|O"'),
    "shape": (lambda: StateEntry("s", "array", "<f8", (3, -1)), "shape=-1"),
    "both": (lambda: StateEntry("s", "value", "", (), pieces=SUMS.pieces, inline=b""), "exclude"),
    "no name": (lambda: StateEntry("", "value", "", ()), "name of a state is empty"),
    "long name": (lambda: OperatorEntry("x" * 1025), "at most 1024 bytes, found 1025"),
    "taken name": (lambda: OperatorEntry("in-flight"), "owns the in-flight data"),
    "state twice": (lambda: OperatorEntry("op", [SEEN, SEEN]), '"seen" occurs twice'),
    "operator twice": (lambda: RegionEntry("r", origin=1, operators=[STATS, STATS]), "twice"),
    "long region": (lambda: RegionEntry("x" * 1025, origin=1), "name of a region"),
    "origin": (lambda: RegionEntry("r", origin=-1), "origin=-1"),
    "fallbacks": (lambda: RegionEntry("r", origin=1, fallbacks=-1), "fallbacks=-1"),
    "stale": (lambda: RegionEntry("r", origin=1, stale_since_ms=-1), "stale_since_ms=-1"),
    "now": (lambda: EAST.fell_back("", -1, []), "now_ms=-1"),
    "created": (lambda: InFlight(-1, "i", 0, 0, inline=b""), "created=-1"),
    "rows": (lambda: InFlight(1, "i", -1, 0, inline=b""), "rows=-1"),
    "bytes": (lambda: InFlight(1, "i", 0, -1, inline=b""), "bytes=-1"),
    "nowhere": (lambda: InFlight(1, "i", 0, 0), "exactly one"),
    "twice there": (lambda: InFlight(1, "i", 0, 0, ref=REF, inline=b""), "exactly one"),
    "no path": (lambda: Staged("", "b", 0, 0), "path of a staged file is empty"),
    "staged rows": (lambda: Staged("a", "b", -1, 0), "rows=-1"),
    "id": (lambda: metadata(id=-1), "id=-1"),
    "batch": (lambda: metadata(batch_id=-2), "at least -1"),
    "checkpoint kind": (lambda: metadata(kind="full"), "checkpoint, savepoint, final"),
    "time": (lambda: metadata(created_ms=-1), "created_ms=-1"),
    "regional": (lambda: metadata(consecutive_regional=-1), "consecutive_regional=-1"),
    "region twice": (lambda: metadata(regions=[EAST, EAST]), '"east" occurs twice'),
    "other name": (lambda: metadata(regions={"north": EAST}), 'under "north"'),
    "later": (lambda: metadata(id=3), "expected up to checkpoint 3, found 4"),
    "own origin": (lambda: metadata(id=3, regions=[WEST]), "expected before checkpoint 3"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_a_value_error(name: str) -> None:
    make, message = WRONG[name]
    with pytest.raises(ValueError, match=message.replace("|", r"\|")):
        make()


@pytest.mark.parametrize("wrong", [{"regions": [None]}, {"regions": 7}, {"coordinators": [1]}])
def test_what_has_another_type_is_a_type_error(wrong: dict[str, Any]) -> None:
    with pytest.raises(TypeError):
        metadata(**wrong)


# --- metadata -----------------------------------------------------------------------------------


def test_metadata_says_what_it_was_made_of() -> None:
    found = metadata()
    assert (found.id, found.batch_id, found.kind) == (4, 2, "checkpoint")
    assert (found.created_ms, found.topology) == (1_700_000_000_000, b"stats")
    assert list(found.regions.items()) == [("east", EAST), ("west", WEST)]
    assert found.coordinators == {"source": b"splits"}
    assert (found.consecutive_regional, found.force_global) == (1, True)
    assert found.finished_operators == ("stats",)
    assert found.properties == {"pipeline": "sales"}
    assert (found.is_global, found.failed) == (False, {"west": 3})
    assert repr(found) == (
        "<CheckpointMetadata 4 of batch 2: checkpoint, 2 regions, failed {'west': 3}>"
    )


def test_regions_are_a_mapping_or_a_sequence() -> None:
    by_name = {"west": WEST, "east": EAST}
    for regions in (by_name, MappingProxyType(by_name), (EAST, WEST)):
        assert metadata(regions=regions) == metadata()


def test_a_checkpoint_shares_the_regions_of_an_older_one() -> None:
    before = metadata()
    south = RegionEntry("south", origin=5)
    after = metadata(id=5, regions={"south": south}, base=before, gone=["west"])
    assert list(after.regions.items()) == [("east", EAST), ("south", south)]
    assert after == metadata(id=5, regions=[EAST, south])
    assert (after.region_count, after.region("east"), after.region("west")) == (2, EAST, None)
    assert after.fresh == {"south": south}
    assert before.fresh == {"east": EAST}
    assert before.notable == {"east": EAST, "west": WEST}
    with pytest.raises(ValueError, match="newer than 5"):
        metadata(id=5, regions={}, base=after)


def test_owners_at_rest_are_those_with_an_older_origin() -> None:
    # R43: regions that fell back may have written the usual states, too.
    found = dict(metadata().at_rest("sales", [("stats", "other")]))
    assert found == {Owner("sales", "stats", "west", "other"): 3}
    later = metadata(id=5, regions={}, base=metadata())
    assert dict(later.at_rest("sales", [])) == {
        Owner("sales", "stats", "east", "sums"): 4,
        Owner("sales", "in-flight", "east", "4"): 4,
    }


def test_a_checkpoint_before_the_first_batch_has_no_regions() -> None:
    # R26.
    first = CheckpointMetadata(1, -1, "checkpoint", 0, b"", {})
    assert (first.batch_id, first.regions, first.is_global) == (-1, {}, True)
    assert CheckpointMetadata.from_bytes(first.to_bytes()) == first


def test_segments_are_what_a_manager_restores(tmp_path: Path) -> None:
    # R71: the metadata names every segment, state with the region's origin, in-flight data with
    # the checkpoint that stored it.
    state_owner = Owner("sales", "stats", "east", "sums")
    owed_owner = Owner("sales", "in-flight", "east", "2")
    with SnapshotManager(tmp_path) as manager:
        state = manager.append(state_owner, 1, b"12345678")
        manager.persist(1)
        manager.completed(1, {1: {}})
        owed = manager.append(owed_owner, 2, b"rows", kind="in_flight")
        manager.persist(2)
    sums = StateEntry("sums", "array", "<f8", (1,), pieces=[Piece(state, 0, 8)])
    east = RegionEntry("east", origin=1, operators=[OperatorEntry("stats", [sums])])
    east = east.fell_back("disk full", 1000, [InFlight(2, "input", 1, 4, ref=owed)])
    found = metadata(id=2, regions=[east])
    assert found.segments("sales") == [(state_owner, 1, state), (owed_owner, 2, owed)]
    assert state.file == owed.file
    assert found.file_bytes() == {owed.file: owed.offset + owed.length}
    known = found.file_bytes()[owed.file]
    assert known <= (tmp_path / owed.file).stat().st_size
    with SnapshotManager(tmp_path) as manager:
        manager.restore({2: found.segments("sales")})
        assert manager.sweep() == 0
        assert manager.read(state, state_owner) == b"12345678"
        assert manager.read(owed, owed_owner) == b"rows"
        # What is known is a help, and no bound.
        for length in (0, 1, known, known + 1):
            assert manager.read(owed, owed_owner, known_bytes=length) == b"rows"


# --- files --------------------------------------------------------------------------------------


def test_a_file_is_written_once_and_read_back(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "metadata"
    path = metadata().write(folder)
    assert path == folder / "0000000000000004.hfc"
    assert path.read_bytes() == metadata().to_bytes()
    assert CheckpointMetadata.read(path) == CheckpointMetadata.read(str(path)) == metadata()
    with pytest.raises(FileExistsError, match="checkpoint 4"):
        metadata(batch_id=3).write(folder)
    assert CheckpointMetadata.read(path) == metadata()
    assert [file.name for file in folder.iterdir()] == [path.name]


def test_a_file_is_read_from_the_current_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = metadata().write(tmp_path)
    monkeypatch.chdir(tmp_path)
    assert CheckpointMetadata.read(path.name) == metadata()
    assert CheckpointMetadata.list(".") == [4]


def test_checkpoints_are_listed_in_order_and_deleted(tmp_path: Path) -> None:
    assert CheckpointMetadata.list(tmp_path / "absent") == []
    for id in (300, 4, 17):
        metadata(id=id).write(tmp_path)
    assert CheckpointMetadata.list(tmp_path) == [4, 17, 300]
    CheckpointMetadata.delete(tmp_path, 17)
    CheckpointMetadata.delete(tmp_path, 17)
    assert CheckpointMetadata.list(tmp_path) == [4, 300]


def test_a_damaged_file_is_named_with_the_offset(tmp_path: Path) -> None:
    path = metadata().write(tmp_path)
    bytes_ = bytearray(path.read_bytes())
    bytes_[-5] ^= 1
    path.write_bytes(bytes_)
    with pytest.raises(CorruptSegmentError, match=f"{path}.*frame at offset {len(bytes_) - 60}"):
        CheckpointMetadata.read(path)
    with pytest.raises(CorruptSegmentError, match="frame at offset 0"):
        CheckpointMetadata.from_bytes(b"something else")


def test_a_missing_file_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"0000000000000004\.hfc"):
        CheckpointMetadata.read(tmp_path / "0000000000000004.hfc")
    with pytest.raises(ValueError, match="not the name of a file"):
        CheckpointMetadata.read("..")


def test_ten_thousand_regions_are_written_and_read(tmp_path: Path) -> None:
    operators = [OperatorEntry(f"operator-{i}", [SUMS]) for i in range(4)]
    regions = [RegionEntry(f"region-{i:05d}", origin=4, operators=operators) for i in range(10_000)]
    large = metadata(regions=regions)
    assert CheckpointMetadata.read(large.write(tmp_path)) == large
    assert len(large.segments("sales")) == 40_000
