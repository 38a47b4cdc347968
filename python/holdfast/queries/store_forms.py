"""How the stores of a query have rows, by what Spark writes about them into the checkpoint.

Spark's classes are ``OperatorStateMetadata`` and ``SchemaHelper``. Java reads the same files in
``io.holdfast.spark.moves.Operator``.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from io import BytesIO
from typing import Any, Final

from holdfast._core import CorruptSegmentError
from holdfast.files.arrow_paths import ReadPath
from holdfast.queries.logs import logged_batches

#: The name of the only store of most operators.
DEFAULT: Final = "default"

_SESSIONS: Final = "sessionWindowStateStoreSaveExec"
_JOIN: Final = "symmetricHashJoin"
_LIMIT: Final = "globalLimit"
#: These have the rows of a side, by the key and a number or a time.
_ROWS_OF_JOINS: Final = ("-keyWithIndexToValue", "-keyWithTsToValues")
#: Keys of these operators are the columns that they group by.
_PLAIN: Final = frozenset(
    {
        "stateStoreSave",
        "dedupe",
        "dedupeWithinWatermark",
        "flatMapGroupsWithState",
        "applyInPandasWithState",
        _LIMIT,
    }
)
#: Forms of keys that can be read.
_ENCODERS: Final = ("NoPrefixKeyStateEncoderSpec", "PrefixKeyScanStateEncoderSpec")

Fields = Sequence[Mapping[str, Any]]
#: Name of a family, fields of keys and values, encoder of keys, number of the schema of values.
_Schema = tuple[str, Fields, Fields, Mapping[str, Any], int]


@dataclass(frozen=True)
class StoreForm:
    """How a store has its rows.

    Attributes
    ----------
    keys, values : sequence of mapping
        Fields as in the JSON of Spark's schemas.
    prefix : int or None
        Number of the first key columns that the store keeps together for scans; None if it does
        not.
    hashed : int or None
        Number of the first key columns that say in which partition a key is; None if not known.
    store : str
        Name of the store, which may have several column families.
    family : (str, bool) or None
        Column family, and whether it has lists of values; None in a store without families.
    versions : mapping of int to sequence of mapping
        Fields of values by the number of their schema, which values in Avro have.
    """

    keys: Fields
    values: Fields
    prefix: int | None
    hashed: int | None
    store: str = DEFAULT
    family: tuple[str, bool] | None = None
    versions: Mapping[int, Fields] = field(default_factory=dict)


@dataclass(frozen=True)
class Operator:
    """A stateful operator of a query, as its newest metadata describes it.

    Attributes
    ----------
    stores : mapping
        Spark's facts about each store.
    variables : mapping of str to str
        Types of the state variables of `transformWithState`, by name.
    """

    folder: ReadPath
    name: str
    stores: Mapping[str, Mapping[str, Any]]
    variables: Mapping[str, str]

    @property
    def names(self) -> list[str]:
        """Names of state: variables, with their timers, or families or stores."""
        return list(self.variables or self._families or self.stores)

    @property
    def sides(self) -> Mapping[str, str]:
        """Names of the state that has the rows of each side of a join; empty for others."""
        if self.name != _JOIN:
            return {}
        rows = [name for name in self.names if name.endswith(_ROWS_OF_JOINS)]
        return {name.partition("-")[0]: name for name in sorted(rows)}

    def form(self, name: str) -> StoreForm:
        """Read how a store or a family has rows.

        Raises a NotImplementedError for a form that cannot be read, and a CorruptSegmentError or
        FileNotFoundError if Spark's file is damaged or gone.
        """
        if name in self._families:
            return self._of_family(name)
        if "stateSchemaFilePaths" in self.stores[name]:
            raise self._unreadable(name)
        partition = self.folder / "0"
        folder = partition if name == DEFAULT else partition / name
        ((_, keys, values, _, _),) = _schemas(folder / "_metadata" / "schema")
        prefix = int(self.stores[name].get("numColsPrefixKey", 0)) or None
        return StoreForm(keys, values, prefix, self._hashed(name, len(keys)), name)

    def _unreadable(self, name: str) -> NotImplementedError:
        return NotImplementedError(
            f"{self.folder}, {self.name}: the state {name} cannot be read without Spark yet: use "
            'spark.read.format("statestore")'
        )

    def _hashed(self, store: str, keys: int) -> int | None:
        if self.name in _PLAIN or (self.name == _JOIN and store.endswith("-keyToNumValues")):
            return keys
        # The begin of a session, or the number of a row, follows the columns.
        is_longer = self.name == _JOIN and store.endswith(_ROWS_OF_JOINS)
        return keys - 1 if is_longer or self.name == _SESSIONS else None

    @cached_property
    def _families(self) -> Mapping[str, list[_Schema]]:
        """The schemas of each family, the newest last."""
        # Spark records full paths, and the checkpoint may be a copy.
        paths = [p for store in self.stores.values() for p in store.get("stateSchemaFilePaths", ())]
        found: dict[str, list[_Schema]] = {}
        for path in paths:
            file = self.folder / "_stateSchema" / DEFAULT / path.rpartition("/")[2]
            for schema in _schemas(file):
                found.setdefault(schema[0], []).append(schema)
        return found

    def _of_family(self, name: str) -> StoreForm:
        schemas = self._families[name]
        _, keys, values, encoder, _ = schemas[-1]
        kind = self.variables.get(name, "")
        # A list has several rows for a key. Keys of maps and timers begin with a struct.
        known = {"ValueState": len(keys), "MapState": 1, "TimerState": 1}
        hashed = known.get(kind, self._hashed(name, len(keys)))
        if encoder["keyStateEncoderType"] not in _ENCODERS:
            raise self._unreadable(name)
        prefix = encoder.get("numColsPrefixKey")
        family = (name, kind == "ListState")
        versions = {number: fields for _, _, fields, _, number in schemas}
        return StoreForm(keys, values, prefix, hashed, DEFAULT, family, versions)


def operators(folder: ReadPath) -> list[int]:
    """Return the stateful operators of a query."""
    return logged_batches(folder / "state")


def read_operator(folder: ReadPath, operator: int, batch: int) -> Operator:
    """Read the description of an operator at a batch.

    Raises a CorruptSegmentError if it is damaged, and a NotImplementedError if there is none.
    """
    own = folder / "state" / str(operator)
    metadata = own / "_metadata"
    newer = [one for one in logged_batches(metadata / "v2") if one <= batch]
    file = metadata / "v2" / str(newer[-1]) if newer else metadata / "metadata"
    try:
        found = json.loads(file.read_text().partition("\n")[2])
        stores = {store["storeName"]: store for store in found["stateStoreInfo"]}
        name = str(found["operatorInfo"]["operatorName"])
        properties = json.loads(found.get("operatorPropertiesJson") or "{}")
        variables = {
            one["stateName"]: one["stateVariableType"]
            for one in properties.get("stateVariables", ())
        }
        return Operator(own, name, stores, variables)
    except FileNotFoundError:
        raise NotImplementedError(
            f"{file} does not describe the operator: Spark did that from 4.0 on"
        ) from None
    except (LookupError, TypeError, ValueError):
        raise CorruptSegmentError(f"{file} is damaged: put it back from a copy") from None


def _schemas(file: ReadPath) -> list[_Schema]:
    """Read the schema of each family of a file.

    Java's ``DataOutputStream`` wrote it.
    """
    stream = BytesIO(file.read_bytes())

    def number(size: int) -> int:
        read = stream.read(size)
        if len(read) < size:
            raise ValueError("the file is cut")
        return int.from_bytes(read, "big")

    def text() -> str:
        return stream.read(number(2)).decode()

    def document(parts: int) -> Any:
        return json.loads("".join(text() for _ in range(parts)))

    try:
        version = text()
        if version in ("v1", "v2"):
            # From version 2 on, a long text is in several parts.
            keys, values = (document(1 if version == "v1" else number(4)) for _ in range(2))
            return [("", keys["fields"], values["fields"], {}, 0)]
        if version != "v3":
            raise NotImplementedError(f"{file}: expected a version up to v3, found {version}")
        families = []
        for _ in range(number(4)):
            name = text()
            # Each schema has a number, which only values in Avro use.
            (_, keys), (id, values) = ((number(2), document(number(4))) for _ in range(2))
            encoder = document(number(4))
            families.append((name, keys["fields"], values["fields"], encoder, id))
            document(number(4))  # the schema of keys within a map, which the keys have, too
        return families
    except (LookupError, TypeError, ValueError):
        raise CorruptSegmentError(f"{file} is damaged: put it back from a copy") from None
