"""`SnapshotManager` as a Python program sees it: real files in a real folder."""

from __future__ import annotations

import array
import errno
import gc
import mmap
import os
import pickle
import random
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import holdfast
from holdfast import (
    AttemptEndedError,
    CorruptSegmentError,
    FencedError,
    Owner,
    SegmentRef,
    SnapshotManager,
)

EAST = Owner("sales", "stats", "east")
WEST = Owner("sales", "stats", "west")

# Bytes that do not become smaller.
NOISE = random.Random(1).randbytes  # noqa: S311

# Files with a few bytes of state are mostly header and footer, too wasteful to reuse otherwise.
UNBOUNDED: dict[str, Any] = {"max_space_amplification": None}


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[SnapshotManager]:
    with SnapshotManager(tmp_path) as opened:
        yield opened


def files_in(folder: Path) -> set[str]:
    """Names of the files with segments: number 0 is the claim of an open manager."""
    return {path.name for path in folder.iterdir() if not path.name.endswith("-00000000.hf")}


# --- values -------------------------------------------------------------------------------------


def test_owners_compare_hash_print_and_pickle_by_content() -> None:
    same = Owner("sales", operator="stats", region="east", store="default")
    assert same == EAST
    assert len({same, EAST, WEST}) == 2
    assert sorted([WEST, EAST]) == [EAST, WEST]
    assert pickle.loads(pickle.dumps(EAST)) == EAST  # noqa: S301
    assert eval(repr(Owner("it's", "a\nb", "c"))) == Owner("it's", "a\nb", "c")  # noqa: S307
    assert EAST != ("sales", "stats", "east", "default")


def test_values_cannot_be_changed(manager: SnapshotManager) -> None:
    with pytest.raises(AttributeError):
        EAST.region = "west"  # type: ignore[misc]
    with pytest.raises(AttributeError):
        manager.append(EAST, 1, b"x").offset = 0  # type: ignore[misc]
    with pytest.raises(AttributeError):
        manager.stats().appends = 7  # type: ignore[misc]


def test_a_reference_survives_bytes_and_pickle(manager: SnapshotManager) -> None:
    ref = manager.append(EAST, 1, b"state")
    assert len(ref.to_bytes()) == 44
    assert SegmentRef.from_bytes(ref.to_bytes()) == ref
    assert pickle.loads(pickle.dumps(ref)) == ref  # noqa: S301
    assert {ref: 1}[SegmentRef.from_bytes(ref.to_bytes())] == 1


def test_a_reference_says_where_the_segment_is(manager: SnapshotManager, tmp_path: Path) -> None:
    first, second = (manager.append(EAST, 1, b"state") for _ in range(2))
    assert first.term == manager.term
    assert first.file == second.file
    assert files_in(tmp_path) == {first.file}
    assert second.offset == first.offset + first.length
    assert second.offset + second.length == (tmp_path / first.file).stat().st_size
    assert len(first.digest) == 16
    assert first.digest.hex() in repr(first)


@pytest.mark.parametrize("size", [0, 43, 45])
def test_a_reference_of_another_length_is_refused(size: int) -> None:
    with pytest.raises(ValueError, match=f"44 bytes, found {size}"):
        SegmentRef.from_bytes(bytes(size))


# --- payloads -----------------------------------------------------------------------------------

MATRIX = np.arange(12, dtype="float64").reshape(3, 4)
PAYLOADS: dict[str, tuple[Any, bytes]] = {
    "bytes": (b"abc", b"abc"),
    "empty": (b"", b""),
    "bytearray": (bytearray(b"abc"), b"abc"),
    "memoryview": (memoryview(b"abcdef")[2:4], b"cd"),
    "memoryview with a step": (memoryview(b"abcdef")[::2], b"ace"),
    "array": (array.array("i", [1, 2, 3]), array.array("i", [1, 2, 3]).tobytes()),
    "float matrix": (MATRIX, MATRIX.tobytes()),
    "transposed matrix": (MATRIX.T, MATRIX.T.tobytes()),
    "column of a matrix": (MATRIX[:, 1], MATRIX[:, 1].tobytes()),
    "read-only array": (np.frombuffer(b"abcd", dtype="uint16"), b"abcd"),
    "array without dimensions": (np.array(1.5), np.array(1.5).tobytes()),
    "array without elements": (np.zeros((0, 3)), b""),
    "record array": (np.zeros(2, dtype=[("a", "i4"), ("b", "f8")]), bytes(24)),
    "arrow buffer": (pa.py_buffer(b"abc"), b"abc"),
}


@pytest.mark.parametrize("name", PAYLOADS)
def test_any_buffer_is_stored_in_c_order(manager: SnapshotManager, name: str) -> None:
    data, stored = PAYLOADS[name]
    assert manager.read(manager.append(EAST, 1, data), EAST) == stored


def test_a_mapped_file_is_a_buffer(manager: SnapshotManager, tmp_path: Path) -> None:
    source = tmp_path / "source"
    source.write_bytes(b"mapped" * 1000)
    with source.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as mapped:
        ref = manager.append(EAST, 1, mapped)
    assert manager.read(ref, EAST) == b"mapped" * 1000


def test_a_buffer_is_given_back(manager: SnapshotManager) -> None:
    data = bytearray(b"abc")
    manager.append(EAST, 1, data)
    gc.collect()
    data.extend(b"def")  # BufferError while another object holds the buffer


@pytest.mark.parametrize("data", ["text", 7, None, [1, 2]])
def test_what_is_no_buffer_is_refused(manager: SnapshotManager, data: Any) -> None:
    with pytest.raises(TypeError, match="bytes-like"):
        manager.append(EAST, 1, data)
    assert manager.stats().appends == 0


def test_threads_append_to_one_file_without_mixing(manager: SnapshotManager) -> None:
    def state(region: int) -> tuple[Owner, bytes]:
        return Owner("p", "o", str(region)), NOISE(100_000 + region)

    states = [state(region) for region in range(40)]
    with ThreadPoolExecutor(8) as pool:
        refs = list(pool.map(lambda s: manager.append(s[0], 1, s[1]), states))
    assert len({ref.file for ref in refs}) == 1
    assert [manager.read(ref, owner) for ref, (owner, _) in zip(refs, states, strict=True)] == [
        data for _, data in states
    ]


def test_the_interpreter_runs_on_while_a_segment_is_written(manager: SnapshotManager) -> None:
    data = NOISE(1 << 20)
    order = []

    def write() -> None:
        for _ in range(50):
            manager.append(EAST, 1, data)
        order.append("all written")

    writer = threading.Thread(target=write)
    interval = sys.getswitchinterval()
    # No thread is made to give up the interpreter: the next line below runs before the end of
    # `write` only if `append` lets go of it.
    sys.setswitchinterval(1000)
    try:
        writer.start()
        order.append("main thread ran")
        writer.join()
    finally:
        sys.setswitchinterval(interval)
    assert order == ["main thread ran", "all written"]


# --- lifecycle ----------------------------------------------------------------------------------


def test_a_small_file_bound_rolls_files(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path, max_file_bytes=1000, compression="none") as manager:
        refs = [manager.append(EAST, 1, bytes(600)) for _ in range(4)]
        assert len({ref.file for ref in refs}) == 2
        assert manager.stats().seals == 2
        assert all(manager.read(ref, EAST) == bytes(600) for ref in refs)


def test_a_subsumed_checkpoint_lets_its_files_go(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path, across_checkpoints=False) as manager:
        refs = {}
        for checkpoint in (1, 2, 3):
            refs[checkpoint] = manager.append(EAST, checkpoint, b"state")
            manager.persist(checkpoint)
            manager.completed(checkpoint, {checkpoint: {}})
        manager.wait_for_deletes()
        assert files_in(tmp_path) == {refs[3].file}
        assert manager.stats().deletes == 2
        with pytest.raises(FileNotFoundError, match=refs[1].file):
            manager.read(refs[1], EAST)


def test_owners_share_a_file_whenever_they_acknowledge(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path, across_checkpoints=False) as manager:
        for region in range(20):
            owner = Owner("sales", "stats", str(region))
            manager.persist_segments(1, owner, [manager.append(owner, 1, b"state")])
        manager.completed(1, {1: {}})
        assert len(files_in(tmp_path)) == 1


def test_a_closed_manager_has_deleted_what_was_due(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path) as manager:
        for checkpoint in (1, 2, 3):
            last = manager.append(EAST, checkpoint, NOISE(200_000))
            manager.completed(checkpoint, {checkpoint: {}})
    assert files_in(tmp_path) == {last.file}


def test_an_owner_that_fell_back_keeps_its_origin_and_nothing_else(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path, across_checkpoints=False) as manager:
        old = {owner: manager.append(owner, 1, b"one") for owner in (EAST, WEST)}
        manager.completed(1, {1: {}})
        new = {owner: manager.append(owner, 2, b"two") for owner in (EAST, WEST)}
        # Checkpoint 1 is subsumed in the same breath: only WEST's fallback holds its file.
        manager.partially_completed(2, {WEST: 1}, {2: {WEST: 1}})
        assert manager.read(new[EAST], EAST) == b"two"
        assert manager.read(old[WEST], WEST) == b"one"
        assert manager.stats().live_segments == 2
        (pinned,) = (file for file in manager.files() if file.pinned)
        assert pinned.file == old[WEST].file
        assert manager.stats().pinned_bytes == pinned.physical_bytes

        # A fallback of a fallback still means the first origin.
        manager.partially_completed(3, {WEST: 1, EAST: 2}, {3: {WEST: 1, EAST: 2}})
        assert manager.read(old[WEST], WEST) == b"one"
        newest = manager.append(WEST, 4, b"four")
        manager.partially_completed(4, {EAST: 2}, {4: {EAST: 2}})
        manager.wait_for_deletes()
        assert files_in(tmp_path) == {new[EAST].file, newest.file}


def test_an_aborted_attempt_leaves_nothing_and_touches_nothing(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path, across_checkpoints=False) as manager:
        kept = manager.append(EAST, 1, b"one")
        manager.completed(1, {1: {}})
        gone = manager.append(EAST, 2, b"two")
        manager.aborted(2, {1: {}})
        manager.wait_for_deletes()
        assert files_in(tmp_path) == {kept.file}
        assert gone.file != kept.file
        assert manager.read(kept, EAST) == b"one"


def test_late_work_for_a_decided_attempt_is_refused(manager: SnapshotManager) -> None:
    ref = manager.append(EAST, 1, b"one")
    manager.completed(1, {1: {}})
    manager.aborted(2, {1: {}})
    calls: list[Callable[[], object]] = [
        lambda: manager.append(EAST, 2, b"late"),
        lambda: manager.lease(EAST, 2, [ref]),
        lambda: manager.persist(2),
    ]
    for call in calls:
        with pytest.raises(AttemptEndedError, match="checkpoint 2"):
            call()
    assert issubclass(AttemptEndedError, RuntimeError)


def test_messages_may_come_twice_and_in_any_order(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path, across_checkpoints=False) as manager:
        for checkpoint in (1, 2):
            last = manager.append(EAST, checkpoint, b"state")
        manager.completed(2, {2: {}})
        manager.completed(1, {1: {}})  # late: it must not bring checkpoint 1 back
        manager.subsumed(1, {2: {}})
        manager.completed(2, {2: {}})
        manager.started(1)
        manager.wait_for_deletes()
        assert files_in(tmp_path) == {last.file}


def test_a_leased_segment_outlives_the_checkpoint_it_was_written_for(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path, across_checkpoints=False, **UNBOUNDED) as manager:
        base = manager.append(EAST, 1, b"base", kind="changelog", entries=1)
        manager.completed(1, {1: {}})
        assert manager.lease(EAST, 2, [base]) == [True]
        assert manager.lease(WEST, 2, [base]) == [False]
        change = manager.append(EAST, 2, b"change", kind="changelog", lineage=[base])
        manager.persist_segments(2, EAST, [base, change])
        manager.completed(2, {2: {}})
        assert manager.read(base, EAST) == b"base"
        manager.completed(3, {3: {}})
        manager.wait_for_deletes()
        assert files_in(tmp_path) == set()
        assert manager.lease(EAST, 4, [base]) == [False]


def test_a_refused_acknowledgement_is_released(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path, across_checkpoints=False) as manager:
        ref = manager.append(EAST, 1, b"one")
        manager.release(EAST, [ref])
        manager.release(EAST, [ref])
        assert manager.stats().live_segments == 0
        with pytest.raises(FileNotFoundError, match="write it again"):
            manager.persist_segments(1, EAST, [ref])


def test_an_impossible_view_is_refused_and_changes_nothing(manager: SnapshotManager) -> None:
    ref = manager.append(EAST, 1, b"one")
    with pytest.raises(ValueError, match="does not retain it"):
        manager.completed(1, {})
    with pytest.raises(ValueError, match="its view retains it"):
        manager.aborted(1, {1: {}})
    with pytest.raises(ValueError, match="fallbacks"):
        manager.partially_completed(1, {WEST: 0}, {1: {}})
    manager.persist(1)
    assert manager.read(ref, EAST) == b"one"


def test_fallbacks_and_views_that_contradict_each_other_are_refused(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path) as manager:
        refs = {owner: manager.append(owner, 1, b"one") for owner in (EAST, WEST)}
        manager.completed(1, {1: {}})
        manager.partially_completed(2, {WEST: 1}, {2: {WEST: 1}})
        with pytest.raises(ValueError, match="does not retain it"):
            manager.partially_completed(3, {WEST: 1}, {4: {}}, decided=4)
        with pytest.raises(ValueError, match="in checkpoint 2 it fell back to 1"):
            manager.partially_completed(3, {WEST: 2}, {3: {WEST: 2}})
        with pytest.raises(ValueError, match="older than the checkpoint"):
            manager.partially_completed(3, {WEST: 3}, {3: {WEST: 3}})
        manager.wait_for_deletes()
        assert manager.read(refs[WEST], WEST) == b"one"
    with SnapshotManager(tmp_path) as again:
        with pytest.raises(ValueError, match="it is that of"):
            again.restore({1: [(EAST, 1, refs[WEST]), (WEST, 1, refs[EAST])]})
        again.restore({1: [(owner, 1, ref) for owner, ref in refs.items()]})


def test_any_mapping_tells_what_is_retained(manager: SnapshotManager) -> None:
    ref = manager.append(EAST, 1, b"one")
    manager.partially_completed(
        1, MappingProxyType({WEST: 0}), MappingProxyType({1: MappingProxyType({WEST: 0})})
    )
    assert manager.read(ref, EAST) == b"one"
    with pytest.raises(TypeError):
        manager.completed(2, [2])  # type: ignore[arg-type]


# --- restart ------------------------------------------------------------------------------------


def test_a_restart_reads_what_is_retained_and_sweeps_the_rest(tmp_path: Path) -> None:
    first = SnapshotManager(tmp_path, across_checkpoints=False)
    kept = {owner: first.append(owner, 1, b"one") for owner in (EAST, WEST)}
    first.completed(1, {1: {}})
    lost = first.append(EAST, 2, b"never completed")
    first.close()

    with SnapshotManager(tmp_path, **UNBOUNDED) as second:
        assert second.term > kept[EAST].term
        second.restore({1: [(owner, 1, ref) for owner, ref in kept.items()]})
        assert second.sweep() == 1
        assert files_in(tmp_path) == {kept[EAST].file}
        assert second.lease(EAST, 2, [kept[EAST]]) == [True]
        fresh = second.append(EAST, 2, b"two")
        assert fresh.file not in {kept[EAST].file, lost.file}
        assert second.read(kept[WEST], WEST) == b"one"


def test_a_sweep_before_a_restore_is_refused(manager: SnapshotManager) -> None:
    with pytest.raises(ValueError, match="before restore"):
        manager.sweep()
    manager.restore({})
    assert manager.sweep() == 0


def test_terms_rise_even_when_the_folder_is_empty_again(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path) as first:
        ref = first.append(EAST, 1, b"one")
    (tmp_path / ref.file).unlink()
    with SnapshotManager(tmp_path) as second:
        assert second.term >= ref.term
        assert second.term > 1_500_000_000_000  # milliseconds: no term is used twice


def test_a_restore_names_what_is_missing_and_keeps_the_rest(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path, across_checkpoints=False) as first:
        gone = first.append(EAST, 1, b"one")
        kept = first.append(WEST, 2, b"two")
    (tmp_path / gone.file).unlink()
    with SnapshotManager(tmp_path) as second:
        with pytest.raises(FileNotFoundError) as caught:
            second.restore({1: [(EAST, 1, gone)], 2: [(WEST, 2, kept)]})
        assert gone.file in str(caught.value)
        assert "east" in str(caught.value)
        second.sweep()
        assert second.read(kept, WEST) == b"two"


def become_folder(file: Path) -> None:
    file.unlink()
    file.mkdir()


def lose_header(file: Path) -> None:
    file.write_bytes(bytes(64) + file.read_bytes()[64:])


@pytest.mark.parametrize(
    "damage",
    [
        lambda file: os.truncate(file, 100),
        lambda file: os.truncate(file, 0),
        Path.unlink,
        become_folder,
        lose_header,
    ],
    ids=["cut", "empty", "gone", "folder", "header"],
)
def test_a_restore_deletes_no_damaged_file_and_goes_on_once_it_is_repaired(
    tmp_path: Path, damage: Callable[[Path], None]
) -> None:
    with SnapshotManager(tmp_path) as first:
        ref = first.append(EAST, 1, NOISE(1000))
    file = tmp_path / ref.file
    whole = file.read_bytes()
    damage(file)
    left = file.read_bytes() if file.is_file() else None
    needed = {1: [(EAST, 1, ref)]}
    with SnapshotManager(tmp_path) as second:
        for _ in range(2):
            with suppress(OSError):
                second.restore(needed)
            with suppress(ValueError):
                second.sweep()
            second.wait_for_deletes()
            with pytest.raises(OSError, match=ref.file):
                second.read(ref, EAST)
        assert left is None or file.read_bytes() == left
        if file.is_dir():
            file.rmdir()
        file.write_bytes(whole)
        with suppress(ValueError):
            second.sweep()
        second.restore(needed)
        second.sweep()
        assert len(second.read(ref, EAST)) == 1000
    with SnapshotManager(tmp_path) as third:
        third.restore(needed)
        third.completed(2, {2: {}})
        third.wait_for_deletes()
        assert files_in(tmp_path) == set()


def test_what_was_cut_off_is_not_reused(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path) as first:
        refs = [first.append(EAST, 1, b"one"), first.append(EAST, 1, b"two")]
    os.truncate(tmp_path / refs[1].file, refs[1].offset + 1)
    with SnapshotManager(tmp_path, **UNBOUNDED) as second:
        with pytest.raises(FileNotFoundError, match="1 segments of retained checkpoints"):
            second.restore({1: [(EAST, 1, ref) for ref in refs]})
        assert second.lease(EAST, 2, refs) == [True, False]


def test_after_a_restore_that_failed_nothing_is_swept(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path) as first:
        ref = first.append(EAST, 1, b"one")
    with SnapshotManager(tmp_path) as second:
        second.restore({})
        with pytest.raises(ValueError, match="it is that of"):
            second.restore({1: [(WEST, 1, ref)]})
        with pytest.raises(ValueError, match="before restore"):
            second.sweep()
        second.restore({1: [(EAST, 1, ref)]})
        assert second.sweep() == 0
        assert second.read(ref, EAST) == b"one"


@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_a_restore_deletes_no_file_that_it_may_not_read(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path) as first:
        ref = first.append(EAST, 1, b"one")
    tmp_path.chmod(0o777)
    (tmp_path / ref.file).chmod(0)
    program = f"""
import os, holdfast
os.chdir({str(tmp_path)!r})
os.setuid(65534)
with holdfast.SnapshotManager("/proc/self/cwd") as manager:
    manager.restore({{}})
    ref = holdfast.SegmentRef.from_bytes({ref.to_bytes()!r})
    for call in (lambda: manager.restore({{1: [({EAST!r}, 1, ref)]}}), manager.sweep):
        try:
            call()
        except (PermissionError, ValueError) as error:
            print(type(error).__name__)
    manager.wait_for_deletes()
"""
    done = subprocess.run(
        [sys.executable, "-c", program.replace("Owner(", "holdfast.Owner(")],
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stdout.split() == ["PermissionError", "ValueError"]
    with SnapshotManager(tmp_path) as second:
        second.restore({1: [(EAST, 1, ref)]})
        assert second.read(ref, EAST) == b"one"


# --- damage and failures ------------------------------------------------------------------------


def test_a_flipped_byte_is_named_with_file_offset_and_owner(
    manager: SnapshotManager, tmp_path: Path
) -> None:
    manager.append(WEST, 1, b"neighbour")
    ref = manager.append(EAST, 1, b"state" * 100)
    neighbour = manager.append(WEST, 1, b"neighbour")
    path = tmp_path / ref.file
    content = bytearray(path.read_bytes())
    content[ref.offset + ref.length - 1] ^= 1
    path.write_bytes(content)
    with pytest.raises(CorruptSegmentError) as caught:
        manager.read(ref, EAST)
    for fact in (str(path), f"offset {ref.offset}", "east", "expected", "found"):
        assert fact in str(caught.value)
    assert isinstance(caught.value, OSError)
    assert manager.read(neighbour, WEST) == b"neighbour"


def test_a_truncated_file_is_named(manager: SnapshotManager, tmp_path: Path) -> None:
    ref = manager.append(EAST, 1, b"state" * 100)
    path = tmp_path / ref.file
    os.truncate(path, path.stat().st_size - 1)
    with pytest.raises(CorruptSegmentError, match=ref.file):
        manager.read(ref, EAST)


def test_a_segment_of_another_owner_is_refused(manager: SnapshotManager) -> None:
    ref = manager.append(EAST, 1, b"state")
    with pytest.raises(CorruptSegmentError, match=r"owner: expected .*west.*found .*east"):
        manager.read(ref, WEST)


def test_a_path_that_is_a_file_is_an_os_error(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with pytest.raises(NotADirectoryError) as caught:
        SnapshotManager(path)
    assert caught.value.errno == errno.ENOTDIR
    assert str(path) in str(caught.value)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_file_bytes": 0}, "max_file_bytes=0 is not allowed: expected at least 1"),
        ({"max_file_bytes": -5}, "max_file_bytes=-5 is not allowed"),
        ({"compression": "zip"}, "compression='zip' is not allowed: expected one of lz4, none"),
        ({"max_space_amplification": 0.5}, "max_space_amplification=0.5 is not allowed"),
        ({"max_space_amplification": float("nan")}, "max_space_amplification=NaN is not allowed"),
    ],
)
def test_a_wrong_option_is_refused_with_its_value(
    tmp_path: Path, options: dict[str, Any], message: str
) -> None:
    with pytest.raises(ValueError, match=message):
        SnapshotManager(tmp_path, **options)


def test_a_wrong_kind_is_refused(manager: SnapshotManager) -> None:
    with pytest.raises(ValueError, match=r"kind='image' is not allowed.*in_flight"):
        manager.append(EAST, 1, b"", kind="image")  # type: ignore[arg-type]


def test_a_closed_manager_says_so_and_closes_twice(tmp_path: Path) -> None:
    manager = SnapshotManager(tmp_path)
    assert str(tmp_path) in repr(manager)
    with manager:
        ref = manager.append(EAST, 1, b"state")
    manager.close()
    for call in (lambda: manager.read(ref, EAST), manager.stats, lambda: manager.term):
        with pytest.raises(ValueError, match="closed"):
            call()
    assert repr(manager).startswith("<closed")
    assert manager.path == tmp_path


def test_closing_seals_the_open_file(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path) as manager:
        manager.append(Owner("p", "o", "r"), 1, b"state")
    (file,) = tmp_path.iterdir()
    # The trailer: the last 36 bytes, a frame of type 5 (rust/core/FORMAT.md).
    trailer = file.read_bytes()[-36:]
    assert trailer[:4] == b"HLDF"
    assert trailer[6] == 5


def test_a_manager_that_writes_nothing_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "a" / "b"
    with SnapshotManager(str(folder)) as manager:
        assert files_in(folder) == set()
        assert manager.stats().space_amplification == 1.0
    assert list(folder.iterdir()) == []


# --- several managers ---------------------------------------------------------------------------


def test_managers_opened_at_once_have_terms_of_their_own_and_the_last_to_write_goes_on(
    tmp_path: Path,
) -> None:
    first, second = SnapshotManager(tmp_path), SnapshotManager(tmp_path)
    assert second.term > first.term
    ref = first.append(EAST, 1, b"one")
    first.completed(1, {1: {}})
    second.restore({1: [(EAST, 1, ref)]})
    for refused in (
        lambda: first.append(EAST, 2, b"two"),
        lambda: first.persist(2),
        lambda: first.completed(2, {2: {}}),
    ):
        with pytest.raises(FencedError, match=f"{second.term:016x} took this folder over"):
            refused()
    assert first.read(ref, EAST) == b"one"
    second.append(EAST, 2, b"two")
    for manager in (first, second):
        manager.close()


def test_a_relative_path_is_that_of_the_moment_of_opening(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path)
    with SnapshotManager("segments") as manager:
        assert manager.path == tmp_path / "segments"
        monkeypatch.chdir("elsewhere")
        ref = manager.append(EAST, 1, b"one")
        manager.persist(1)
        assert files_in(tmp_path / "segments") == {ref.file}
        assert manager.read(ref, EAST) == b"one"


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_forked_child_reads_and_does_nothing_else(tmp_path: Path) -> None:
    with SnapshotManager(tmp_path) as manager:
        ref = manager.append(EAST, 1, b"one")
        child = os.fork()
        if child == 0:
            wrong = 1
            try:
                for refused in (
                    lambda: manager.append(EAST, 1, b"two"),
                    lambda: manager.persist(1),
                    lambda: manager.completed(1, {1: {}}),
                ):
                    with pytest.raises(ValueError, match="is its child"):
                        refused()
                assert manager.read(ref, EAST) == b"one"
                manager.close()
                wrong = 0
            finally:
                os._exit(wrong)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        size = (tmp_path / ref.file).stat().st_size
        assert ref.offset + ref.length == size, "the child wrote nothing"
        second = manager.append(EAST, 1, b"two")
        assert second.file == ref.file
        manager.persist_segments(1, EAST, [ref, second])
        assert manager.read(second, EAST) == b"two"


@pytest.mark.parametrize("across", [True, False])
def test_segments_of_a_deleted_file_are_not_acknowledged(tmp_path: Path, *, across: bool) -> None:
    with SnapshotManager(tmp_path, across_checkpoints=across) as manager:
        ref = manager.append(EAST, 1, b"one")
        (tmp_path / ref.file).unlink()
        with pytest.raises(OSError, match=ref.file):
            manager.persist_segments(1, EAST, [ref])
        manager.release(EAST, [ref])
        again = manager.append(EAST, 1, b"one")
        manager.persist_segments(1, EAST, [again])
        assert manager.read(again, EAST) == b"one"


def test_public_names_are_what_the_package_says() -> None:
    assert all(hasattr(holdfast, name) for name in holdfast.__all__)
    for name in ("SnapshotManager", "Owner", "SegmentRef", "CorruptSegmentError"):
        thing = getattr(holdfast, name)
        assert (thing.__module__, bool(thing.__doc__)) == ("holdfast", True)
