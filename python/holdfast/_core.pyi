import builtins
from collections.abc import Callable, Mapping, Sequence, Set
from os import PathLike
from pathlib import Path
from types import TracebackType
from typing import Final, Literal, Self, TypeAlias, final

from typing_extensions import Buffer, disjoint_base

__all__ = [
    "AttemptEndedError",
    "CheckpointMetadata",
    "CommitId",
    "CorruptSegmentError",
    "DifferenceScan",
    "FencedError",
    "FileStatus",
    "InFlight",
    "ManagerClient",
    "NewerFormatError",
    "OperatorEntry",
    "OrphanReclaimer",
    "Owner",
    "Piece",
    "RegionEntry",
    "SegmentRef",
    "SegmentReport",
    "SegmentStore",
    "SnapshotManager",
    "Staged",
    "StateEntry",
    "StateReader",
    "StateScan",
    "Stats",
    "TableSession",
    "__version__",
    "chunk_digests",
    "decode_rows",
    "inspect_segment",
    "lease_from_bytes",
    "lease_step",
    "lease_to_bytes",
    "manager_message",
    "parent_from_bytes",
    "parent_to_bytes",
    "read_segment",
    "read_table",
    "set_local_umask",
]

__version__: Final[str]

# Origins of the owners that fell back, and of every retained checkpoint.
_Fallbacks: TypeAlias = Mapping[Owner, int]
_Retained: TypeAlias = Mapping[int, _Fallbacks]

def chunk_digests(data: Buffer, chunk_bytes: int) -> bytes: ...
def set_local_umask(umask: int | None) -> None: ...
def read_segment(folder: str | PathLike[str], ref: SegmentRef, owner: Owner) -> bytes: ...
def read_table(folder: str | PathLike[str], owner: Owner, id: str) -> bytes: ...
def decode_rows(
    data: bytes, *, keys: Sequence[str], values: Sequence[str]
) -> tuple[int, list[_Built]]: ...
def lease_to_bytes(json: str) -> bytes: ...
def lease_from_bytes(data: bytes) -> str: ...
def parent_to_bytes(json: str) -> bytes: ...
def parent_from_bytes(data: bytes) -> str: ...
def lease_step(
    *, same: bool | None, held: bool, copied: bool, retained: bool | None, published: bool
) -> Literal["record", "copy", "look", "hold", "publish", "done", "give up", "refuse"]: ...
def inspect_segment(folder: str | PathLike[str], ref: SegmentRef) -> SegmentReport: ...

class CorruptSegmentError(OSError): ...
class AttemptEndedError(RuntimeError): ...
class FencedError(OSError): ...
class NewerFormatError(RuntimeError): ...

@final
class Owner:
    def __new__(cls, pipeline: str, operator: str, region: str, store: str = "default") -> Self: ...
    pipeline: Final[str]
    operator: Final[str]
    region: Final[str]
    store: Final[str]
    def __getnewargs__(self) -> tuple[str, str, str, str]: ...
    def __lt__(self, other: Owner, /) -> bool: ...
    def __le__(self, other: Owner, /) -> bool: ...
    def __gt__(self, other: Owner, /) -> bool: ...
    def __ge__(self, other: Owner, /) -> bool: ...

@final
class SegmentRef:
    @classmethod
    def from_bytes(cls, data: bytes) -> SegmentRef: ...
    def to_bytes(self) -> bytes: ...
    term: Final[int]
    file: Final[str]
    offset: Final[int]
    length: Final[int]
    digest: Final[bytes]
    def __lt__(self, other: SegmentRef, /) -> bool: ...
    def __le__(self, other: SegmentRef, /) -> bool: ...
    def __gt__(self, other: SegmentRef, /) -> bool: ...
    def __ge__(self, other: SegmentRef, /) -> bool: ...

@final
class CommitId:
    @classmethod
    def parse(cls, text: str) -> CommitId: ...
    @staticmethod
    def is_holdfasts(text: str) -> bool: ...
    @staticmethod
    def is_view(text: str) -> bool: ...
    @staticmethod
    def needed(partition: int, text: str) -> list[tuple[int, CommitId]]: ...
    version: Final[int]
    ref: Final[SegmentRef | None]
    replaced: Final[SegmentRef | None]
    pending: Final[list[tuple[int, SegmentRef]]]

@final
class SegmentReport:
    @classmethod
    def from_bytes(cls, data: bytes) -> SegmentReport: ...
    owner: Final[Owner]
    created: Final[int]
    kind: Final[Literal["changelog", "snapshot", "in_flight", "run"]]
    lineage: Final[list[SegmentRef]]
    entries: Final[int]
    payload_bytes: Final[int]
    groups: Final[int]
    blocks: Final[int]
    separator_bytes: Final[int]
    filters: Final[int]
    filter_bytes: Final[int]

@final
class Stats:
    physical_files: Final[int]
    physical_bytes: Final[int]
    live_segments: Final[int]
    live_bytes: Final[int]
    pinned_bytes: Final[int]
    seals: Final[int]
    syncs: Final[int]
    appends: Final[int]
    deletes: Final[int]
    delete_failures: Final[int]
    space_amplification: Final[float]

@final
class FileStatus:
    file: Final[str]
    open: Final[bool]
    physical_bytes: Final[int]
    live_segments: Final[int]
    live_bytes: Final[int]
    pinned: Final[bool]
    wasteful: Final[bool]

_Column: TypeAlias = tuple[str, str, int, int, Buffer | None, Buffer | None, Buffer | None]
_Built: TypeAlias = tuple[int, bytes | None, bytes | None, bytes]

@final
class TableSession:
    def get(self, keys: Sequence[_Column]) -> list[_Built]: ...
    def contains(self, keys: Sequence[_Column]) -> bytes: ...
    def upsert(self, keys: Sequence[_Column], values: Sequence[_Column]) -> None: ...
    def delete(self, keys: Sequence[_Column]) -> bytes: ...
    def scan(
        self,
        *,
        prefix: Sequence[_Column] | None = None,
        start: Sequence[_Column] | None = None,
        stop: Sequence[_Column] | None = None,
    ) -> tuple[int, list[_Built], int | None]: ...
    def scan_on(self, scan: int) -> tuple[int, list[_Built], int | None]: ...
    def close_scan(self, scan: int) -> None: ...
    def commit(self) -> tuple[str, tuple[SegmentRef, ...], int]: ...
    def close(self) -> None: ...
    def __len__(self) -> int: ...

# Rows, offset, buffers, and the fields of a struct.
_Key: TypeAlias = tuple[int, int, Sequence[Buffer | None], Sequence["_Key"]]
# Rows, nulls, buffers, and the arrays inside.
_Array: TypeAlias = tuple[int, int, tuple[bytes | None, bytes | None, bytes], Sequence["_Array"]]

@final
class StateReader:
    def __new__(
        cls,
        folder: object,
        operator: str,
        store: str,
        ids: Sequence[tuple[int, str]],
        *,
        keys: Sequence[tuple[str, str]],
        values: Sequence[tuple[str, str]],
        prefix: int | None,
        checksums: bool,
        hashed: int,
        family: tuple[str, bool] | None,
    ) -> Self: ...
    def get(self, keys: Sequence[_Key], rows: int) -> list[_Array]: ...
    def with_prefix(self, prefix: Sequence[_Key]) -> tuple[int, list[_Array]]: ...
    def scan(self) -> StateScan: ...
    def differences(self, after: StateReader, follows: bool) -> DifferenceScan: ...
    def __len__(self) -> int: ...

# The number of values of each key, and their columns.
_Side: TypeAlias = tuple[bytes, list[_Array]]

@final
class DifferenceScan:
    def read(self) -> tuple[int, list[_Array], tuple[_Side, _Side]]: ...

@final
class StateScan:
    def read(self) -> tuple[int, list[_Array]]: ...

@disjoint_base
class SegmentStore:
    def append(
        self,
        owner: Owner,
        checkpoint: int,
        data: Buffer,
        *,
        kind: Literal["snapshot", "changelog", "in_flight"] = "snapshot",
        lineage: Sequence[SegmentRef] = (),
        entries: int = 0,
    ) -> SegmentRef: ...
    def read(self, ref: SegmentRef, owner: Owner, *, known_bytes: int = 0) -> bytes: ...
    def persist_segments(
        self, checkpoint: int, owner: Owner, refs: Sequence[SegmentRef]
    ) -> None: ...
    def lease(self, owner: Owner, checkpoint: int, refs: Sequence[SegmentRef]) -> list[bool]: ...
    def open_table(
        self,
        owner: Owner,
        checkpoint: int,
        *,
        keys: Sequence[str],
        values: Sequence[str],
        id: str | None = None,
    ) -> TableSession: ...
    def release(self, owner: Owner, refs: Sequence[SegmentRef]) -> None: ...
    def close(self) -> None: ...
    def __enter__(self) -> Self: ...
    def __exit__(
        self,
        exc_type: type[BaseException] | None,
        exc_value: BaseException | None,
        traceback: TracebackType | None,
        /,
    ) -> None: ...

@final
class SnapshotManager(SegmentStore):
    def __new__(
        cls,
        path: str | PathLike[str],
        *,
        max_file_bytes: int = 33554432,
        across_checkpoints: bool | None = None,
        compression: Literal["lz4", "none"] = "lz4",
        max_space_amplification: float | None = 2.0,
    ) -> Self: ...
    path: Final[Path]
    term: Final[int]
    across_checkpoints: Final[bool]
    def persist(self, checkpoint: int) -> None: ...
    def copy_table(
        self, folder: str | PathLike[str], before: Owner, id: str, after: Owner, checkpoint: int
    ) -> tuple[str, tuple[SegmentRef, ...], int]: ...
    def divide_tables(
        self,
        folder: str | PathLike[str],
        before: Sequence[tuple[Owner, str]],
        after: Owner,
        checkpoint: int,
        *,
        keys: Sequence[str],
        choose: Callable[[int, int, list[_Built]], bytes],
    ) -> tuple[str, tuple[SegmentRef, ...], int]: ...
    def started(self, checkpoint: int) -> None: ...
    def completed(
        self, checkpoint: int, retained: _Retained, *, decided: int | None = None
    ) -> None: ...
    def partially_completed(
        self,
        checkpoint: int,
        fallbacks: _Fallbacks,
        retained: _Retained,
        *,
        decided: int | None = None,
    ) -> None: ...
    def aborted(
        self, checkpoint: int, retained: _Retained, *, decided: int | None = None
    ) -> None: ...
    def subsumed(
        self, checkpoint: int, retained: _Retained, *, decided: int | None = None
    ) -> None: ...
    def restore(self, checkpoints: dict[int, Sequence[tuple[Owner, int, SegmentRef]]]) -> None: ...
    def restore_checkpoints(
        self, pipeline: str, checkpoints: Sequence[CheckpointMetadata]
    ) -> None: ...
    def sweep(self) -> int: ...
    def wait_for_deletes(self) -> None: ...
    def stats(self) -> Stats: ...
    def files(self) -> list[FileStatus]: ...

@final
class OrphanReclaimer:
    def __new__(cls, folder: str | PathLike[str], pipeline: str) -> Self: ...
    def reclaim(
        self,
        retained: Sequence[CheckpointMetadata],
        *,
        live_terms: Set[int],
        newest_term: int,
    ) -> tuple[str, list[str]]: ...

@final
class Piece:
    def __new__(cls, ref: SegmentRef, payload_offset: int, length: int) -> Self: ...
    ref: Final[SegmentRef]
    payload_offset: Final[int]
    length: Final[int]
    def __getnewargs_ex__(self) -> tuple[tuple[()], dict[str, object]]: ...

@final
class StateEntry:
    def __new__(
        cls,
        name: str,
        kind: Literal["array", "value", "list", "union", "broadcast", "table"],
        dtype: str,
        shape: Sequence[int],
        *,
        pieces: Sequence[Piece] = (),
        inline: bytes | None = None,
    ) -> Self: ...
    name: Final[str]
    kind: Final[Literal["array", "value", "list", "union", "broadcast", "table"]]
    dtype: Final[str]
    shape: Final[tuple[int, ...]]
    pieces: Final[tuple[Piece, ...]]
    inline: Final[bytes | None]
    def __getnewargs_ex__(
        self,
    ) -> tuple[tuple[str, str, str, tuple[int, ...]], dict[str, object]]: ...

@final
class OperatorEntry:
    def __new__(
        cls, name: str, states: Sequence[StateEntry] = (), *, finished: bool = False
    ) -> Self: ...
    name: Final[str]
    states: Final[tuple[StateEntry, ...]]
    finished: Final[bool]
    def __getnewargs_ex__(
        self,
    ) -> tuple[tuple[str, tuple[StateEntry, ...]], dict[str, object]]: ...

@final
class InFlight:
    def __new__(
        cls,
        created: int,
        channel: str,
        rows: int,
        bytes: int,
        *,
        ref: SegmentRef | None = None,
        inline: builtins.bytes | None = None,
    ) -> Self: ...
    created: Final[int]
    channel: Final[str]
    rows: Final[int]
    bytes: Final[int]
    ref: Final[SegmentRef | None]
    inline: Final[builtins.bytes | None]
    def __getnewargs_ex__(self) -> tuple[tuple[int, str, int, int], dict[str, object]]: ...

@final
class Staged:
    def __new__(
        cls, path: str, target: str, rows: int, bytes: int, *, output: str = ""
    ) -> Self: ...
    path: Final[str]
    target: Final[str]
    rows: Final[int]
    bytes: Final[int]
    output: Final[str]
    def __getnewargs_ex__(self) -> tuple[tuple[str, str, int, int], dict[str, object]]: ...

@final
class RegionEntry:
    def __new__(
        cls,
        region: str,
        *,
        origin: int,
        operators: Sequence[OperatorEntry] = (),
        in_flight: Sequence[InFlight] = (),
        staged: Sequence[Staged] = (),
        finished: bool = False,
        failed: bool = False,
        fallbacks: int = 0,
        stale_since_ms: int | None = None,
        cause: str = "",
    ) -> Self: ...
    region: Final[str]
    origin: Final[int]
    operators: Final[tuple[OperatorEntry, ...]]
    in_flight: Final[tuple[InFlight, ...]]
    staged: Final[tuple[Staged, ...]]
    finished: Final[bool]
    failed: Final[bool]
    fallbacks: Final[int]
    stale_since_ms: Final[int | None]
    cause: Final[str]
    in_flight_bytes: Final[int]
    def refs(self) -> list[tuple[str, str, SegmentRef]]: ...
    def fell_back(self, cause: str, now_ms: int, in_flight: Sequence[InFlight]) -> RegionEntry: ...
    def carried(self) -> RegionEntry: ...
    def to_bytes(self) -> bytes: ...
    @classmethod
    def from_bytes(cls, data: bytes) -> RegionEntry: ...

@final
class CheckpointMetadata:
    def __new__(
        cls,
        id: int,
        batch_id: int,
        kind: Literal["checkpoint", "savepoint", "final"],
        created_ms: int,
        topology: bytes,
        regions: Mapping[str, RegionEntry] | Sequence[RegionEntry],
        *,
        coordinators: Mapping[str, bytes] = {},
        consecutive_regional: int = 0,
        force_global: bool = False,
        finished_operators: Sequence[str] = (),
        properties: Mapping[str, str] = {},
        base: CheckpointMetadata | None = None,
        gone: Sequence[str] = (),
    ) -> Self: ...
    id: Final[int]
    batch_id: Final[int]
    kind: Final[Literal["checkpoint", "savepoint", "final"]]
    created_ms: Final[int]
    topology: Final[bytes]
    regions: Final[dict[str, RegionEntry]]
    fresh: Final[dict[str, RegionEntry]]
    notable: Final[dict[str, RegionEntry]]
    region_count: Final[int]
    coordinators: Final[dict[str, bytes]]
    consecutive_regional: Final[int]
    force_global: Final[bool]
    finished_operators: Final[tuple[str, ...]]
    properties: Final[dict[str, str]]
    is_global: Final[bool]
    failed: Final[dict[str, int]]
    def region(self, name: str) -> RegionEntry | None: ...
    def since(self, checkpoint: int) -> builtins.list[str]: ...
    def segments(self, pipeline: str) -> builtins.list[tuple[Owner, int, SegmentRef]]: ...
    def at_rest(
        self, pipeline: str, usual: Sequence[tuple[str, str]]
    ) -> builtins.list[tuple[Owner, int]]: ...
    def alike(self) -> builtins.list[builtins.list[str]]: ...
    def samples(self) -> builtins.list[builtins.list[RegionEntry]]: ...
    def outputs_at_most(self) -> set[str]: ...
    def file_bytes(self, *, at_most: bool = False) -> dict[str, int]: ...
    def write(self, folder: str | PathLike[str]) -> Path: ...
    @classmethod
    def read(
        cls, path: str | PathLike[str], *, like: CheckpointMetadata | None = None
    ) -> CheckpointMetadata: ...
    base_file: Final[str | None]
    def write_by(self, put: Callable[[str, bytes], object]) -> None: ...
    @classmethod
    def read_by(cls, data: bytes, read: Callable[[str], bytes]) -> CheckpointMetadata: ...
    @classmethod
    def list(cls, folder: str | PathLike[str]) -> builtins.list[int]: ...
    @classmethod
    def delete(cls, folder: str | PathLike[str], id: int) -> None: ...
    def to_bytes(self) -> bytes: ...
    @classmethod
    def from_bytes(cls, data: bytes) -> CheckpointMetadata: ...

@final
class ManagerClient(SegmentStore):
    def __new__(
        cls,
        socket: str | PathLike[str],
        *,
        pipeline: str,
        folder: str,
        max_file_bytes: int = 33554432,
        compression: Literal["lz4", "none"] = "lz4",
    ) -> Self: ...
    @staticmethod
    def of_executor(
        *,
        pipeline: str,
        folder: str,
        max_file_bytes: int = 33554432,
        compression: Literal["lz4", "none"] = "lz4",
    ) -> ManagerClient: ...
    socket: Final[Path]
    pipeline: Final[str]
    folder: Final[str]
    def send(self, data: bytes) -> None: ...
    def stage(self, local_path: str, staged: str, target: str) -> None: ...

def manager_message(
    kind: Literal["completed", "partially_completed", "aborted"],
    checkpoint: int,
    fallbacks: _Fallbacks,
    retained: _Retained,
    decided: int | None = None,
    released: Mapping[Owner, Sequence[SegmentRef]] | None = None,
) -> bytes: ...
