"""The state of an operator of a regional pipeline, in all regions."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from holdfast._core import CheckpointMetadata, OperatorEntry, StateEntry
from holdfast.files.arrow_paths import ArrowPath, ReadPath
from holdfast.files.segments import StoredSegments, stored_segments
from holdfast.reading.opened_state import OpenedState, chosen_name
from holdfast.reading.state_differences import distinct
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.routing import key_name
from holdfast.regions.base.saved import SavedState
from holdfast.regions.checkpoint.layout import Layout, StageLayout
from holdfast.regions.checkpoint.read import checkpoint_ids, choose
from holdfast.regions.files.folders import METADATA_FOLDER, PIPELINE_PROPERTY, CheckpointFolders
from holdfast.regions.state.kinds.document import text_of
from holdfast.regions.state.kinds.encoding import BYTES, MAP, decode_value, plain
from holdfast.regions.state.kinds.kind import form_of
from holdfast.regions.state.kinds.restoring import small_state, table_rows
from holdfast.regions.state.segments import read_operator
from holdfast.regions.state.tables.columns import Columns
from holdfast.regions.state.tables.expiring import EXPIRES, SET
from holdfast.regions.state.tables.stored_table import (
    saved_columns,
    saved_commit,
    saved_key,
)

#: Most rows of a batch.
_BATCH_ROWS: Final = 1 << 16


class _Place(NamedTuple):
    """A state of one instance of an operator in a region."""

    region: str
    stage: StageLayout
    instance: int
    state: StateEntry


def open_pipeline(
    folder: ReadPath,
    checkpoint: int | None,
    operator: int | str | None,
    store: str | None,
    tag: str | None,
) -> PipelineState:
    """Open a state of a pipeline; see `open_state` for errors."""
    if not (folder / METADATA_FOLDER).is_dir():
        raise FileNotFoundError(
            f"{folder}: expected the checkpoint folder of a streaming query or a regional pipeline"
        )
    if isinstance(folder, ArrowPath):
        raise NotImplementedError(
            f"{folder}: the state of a pipeline can only be read on a mounted file system yet: "
            "copy the checkpoint folder to one"
        )
    if tag is not None:
        raise ValueError(f"{folder}: tag {tag!r}: only queries have tags: give a checkpoint's id")
    id = choose(checkpoint_ids(folder), checkpoint, folder)
    folders = CheckpointFolders(folder)
    metadata = folders.read(id)
    found = _found(metadata)
    given = None if operator is None else str(operator)
    chosen = chosen_name(f"{folder}, checkpoint {id}: operator", given, found)
    where = f"{folder}, checkpoint {id}, operator {chosen!r}"
    name = chosen_name(f"{where}: store", store, found[chosen])
    places = found[chosen][name]
    schema, keys = _common_form(places, f"{where}, state {name!r}")
    return PipelineState(folders, metadata, places, schema, keys)


def _found(metadata: CheckpointMetadata) -> dict[str, dict[str, list[_Place]]]:
    """Return the places of states by operator and name, without the indexes of tables."""
    layout = Layout.recorded(metadata)
    instances = {
        name: (stage, number)
        for stage in (layout.stages if layout else ())
        for number, name in enumerate(stage.instances)
    }
    found: dict[str, dict[str, list[_Place]]] = {}
    for region, entry in sorted(metadata.regions.items()):
        for held in entry.operators:
            if held.name not in instances:
                continue  # The pipeline has no such operator any more.
            stage, number = instances[held.name]
            for state in held.states:
                data = memoryview(state.inline or b"")
                if state.kind == "table" and saved_key(data)[0][0] == EXPIRES:
                    continue
                places = found.setdefault(stage.name, {}).setdefault(state.name, [])
                places.append(_Place(region, stage, number, state))
    return found


def _common_form(places: Sequence[_Place], where: str) -> tuple[pa.Schema, int]:
    """Return the `_form` of a state; NotImplementedError if it is not the same in all regions."""
    # Texts can have bytes, too, in regions where the value is something else.
    is_raw = all(place.state.dtype == BYTES for place in places)
    # Most of ten thousand regions have the same words for it.
    by_words = {form_of(place.state): place for place in places}
    forms = {_form(one, where, is_raw=is_raw): one for one in by_words.values()}
    if len(forms) > 1:
        found = [f"{form_of(one.state)} in region {one.region!r}" for one in forms.values()]
        said = f"{where}: expected one form in all regions, found {' and '.join(found)}"
        raise NotImplementedError(said)
    return next(iter(forms))


def _form(place: _Place, where: str, *, is_raw: bool) -> tuple[pa.Schema, int]:
    """Return the columns of a state, and how many of them are columns of the key."""
    _, stage, _, state = place
    keys: list[pa.Field] = []
    values = [pa.field("value", pa.binary() if is_raw else pa.string())]
    form = form_of(state)
    is_routed = False
    if form == "a map":
        keys, is_routed = [pa.field("key", pa.string())], True
    elif form in ("a list", "a union"):
        keys = [pa.field("position", pa.int64())]
    elif state.kind == "array":
        try:
            kind = pa.from_numpy_dtype(np.dtype(state.dtype))
        except pa.ArrowNotImplementedError:
            said = f"{where}: Arrow has no type for items of {np.dtype(state.dtype)}"
            raise NotImplementedError(said) from None
        for _ in state.shape:
            # DuckDB and Polars read lists, and the arrays of regions may differ in length.
            kind = pa.large_list(kind)
        values = [pa.field("value", kind)]
    elif state.kind == "table":
        key, value, hidden = _table_columns(memoryview(state.inline or b""))
        keys, values = [*key.schema], [one for one in value.schema if one.name != hidden]
        is_routed = set(stage.route_by) <= set(key.schema.names)
    own = [pa.field("region", pa.string())]
    if stage.parallelism > 1 and not is_routed:
        own.append(pa.field("instance", pa.int64()))
    return pa.schema([*distinct([*own, *keys, *values])]), len(own) + len(keys)


def _table_columns(data: memoryview) -> tuple[Columns, Columns, str | None]:
    """Return the columns of a table's key and value, and the name of a hidden one."""
    declared = json.loads(saved_columns(data))
    key, value = (Columns.saved(declared[part], where="the table") for part in ("key", "value"))
    return key, value, SET if declared.get("ttl") == SET else None


class PipelineState(OpenedState):
    """The state of an operator in all regions, in one checkpoint; see `OpenedState`."""

    _prefix = 1
    _unit = "checkpoint"

    def __init__(
        self,
        folders: CheckpointFolders,
        metadata: CheckpointMetadata,
        places: Sequence[_Place],
        schema: pa.Schema,
        keys: int,
    ) -> None:
        super().__init__(folders.root, metadata.id, schema, keys)
        self._folders = folders
        self._pipeline = metadata.properties.get(PIPELINE_PROPERTY, "")
        self._places = places

    def _scanned(self, prefix: list[Any] | None) -> Iterator[Any]:
        regions = None if prefix is None else prefix[0].to_pylist()
        with stored_segments(self._folders.segments) as stored:
            for place in self._places:
                if regions is None or place.region in regions:
                    yield from self._rows(place, stored).to_batches(max_chunksize=_BATCH_ROWS)

    def _rows(self, place: _Place, stored: StoredSegments) -> pa.Table:
        owners = RegionOwners(self._pipeline, place.region)
        entry = OperatorEntry(place.stage.instances[place.instance], [place.state])
        read_table = partial(stored.read_table, owners.state(entry.name, place.state.name))
        try:
            (saved,) = read_operator(stored, owners, entry)
            columns = _columns(small_state(saved, read_table), read_table, self.schema)
        except FileNotFoundError as error:
            if self._folders.metadata_file(self.batch_id).exists():
                raise
            raise FileNotFoundError(
                f"{self._folder}: the pipeline no longer retains checkpoint {self.batch_id}: open "
                f"a newer one ({error})"
            ) from None
        own = (place.region, place.instance)[: len(self.schema) - len(columns)]
        repeated = [pa.repeat(pa.scalar(one), len(columns[0])) for one in own]
        return pa.Table.from_arrays([*repeated, *columns], schema=self.schema)


def _columns(state: SavedState, read_table: Callable[[str], bytes], schema: pa.Schema) -> list[Any]:
    """Return the columns of a state's rows in one region, without region and instance."""
    if state.kind == "table":
        key, value, hidden = _table_columns(state.data)
        rows = table_rows(read_table(saved_commit(state.data)), key, value)
        return [rows.column(name) for name in rows.column_names if name != hidden]
    if state.kind == "array":
        return [_nested(state)]
    content = decode_value(state)
    if state.dtype == MAP:
        keys = pa.array([key_name(key) for key in content], pa.string())
        return [keys, _texts(content.values())]
    if state.kind in ("list", "union"):
        return [pa.array(np.arange(len(content))), _texts(content)]
    return [pa.array([content]) if pa.types.is_binary(schema[-1].type) else _texts([content])]


def _texts(values: Iterable[Any]) -> pa.Array:
    return pa.array([text_of(plain(value)) for value in values], pa.string())


def _nested(state: SavedState) -> pa.Array:
    """Return an array as one item of a column."""
    items = np.frombuffer(state.data, state.dtype)
    # Arrow has numbers in the order of bytes of this machine.
    found = pa.array(items.astype(items.dtype.newbyteorder("="), copy=False))
    for axis in reversed(range(len(state.shape))):
        ends = np.arange(math.prod(state.shape[:axis]) + 1) * state.shape[axis]
        found = pa.LargeListArray.from_arrays(pa.array(ends), found)
    return found
