"""Values of states as bytes: JSON, or plain bytes.

JSON has no bytes, no NaN and no difference between a tuple and a list. Bytes and floats that JSON
lacks are written as an object with the one key "$"; a dict that has this key itself is wrapped.
"""

from __future__ import annotations

import base64
import json
import math
from collections.abc import Callable, Mapping
from typing import Any, Final

from holdfast.regions.base.routing import Key
from holdfast.regions.base.saved import SavedState, StateError

# Data types of states that are no arrays: bytes of a JSON text in UTF-8, plain bytes, and a JSON
# text that has the pairs of key and value of a map.
JSON: Final = "|u1"
BYTES: Final = "|V1"
MAP: Final = "|S1"

#: Data type of a value with a time to live: a JSON text with the value, and when it was set.
EXPIRING: Final = "|S2"

#: Version of this text.
EXPIRING_VERSION: Final = 1

_MARK: Final = "$"


def encode_value(content: object) -> tuple[bytes, str]:
    """Return the content of a state, and the data type that says how it is encoded."""
    if isinstance(content, (bytes, bytearray, memoryview)):
        return bytes(content), BYTES
    return json_bytes(plain(content)), JSON


def json_bytes(value: object) -> bytes:
    """Return a JSON text without spaces."""
    return json.dumps(value, separators=(",", ":"), allow_nan=False).encode()


def plain(value: object) -> object:
    """Return a value as JSON has it; StateError if it cannot be kept."""
    value = python_value(value)  # a scalar such as the sum of an array
    encode: Callable[[Any], object] | None = _ENCODERS.get(type(value))
    if encode is None:
        raise StateError(
            f"a value of type {type(value).__name__} cannot be kept; use None, bool, int, float, "
            "str, bytes, and lists and dicts of these, or an array state"
        )
    return encode(value)


def _plain_dict(value: Mapping[object, object]) -> object:
    content: dict[str, object] = {}
    for key, item in value.items():
        if not isinstance(key, str):
            raise StateError(f"a dict with the key {key!r} cannot be kept; keys must be str")
        content[key] = plain(item)
    return {_MARK: ["dict", content]} if _MARK in content else content


_ENCODERS: Final[dict[type, Callable[[Any], object]]] = {
    **dict.fromkeys((type(None), bool, int, str), lambda value: value),
    float: lambda value: value if math.isfinite(value) else {_MARK: ["float", repr(value)]},
    bytes: lambda value: {_MARK: ["bytes", base64.b64encode(value).decode()]},
    list: lambda value: [plain(item) for item in value],
    dict: _plain_dict,
}


def python_value(value: Any) -> Any:
    """Return a scalar of NumPy as the equal value of Python; any other value unchanged."""
    if type(value).__module__ != "numpy" or getattr(value, "ndim", None) != 0:
        return value
    # Times in nanoseconds would become integers.
    return value if value.dtype.kind in "mM" else value.item()


def decode_value(saved: SavedState) -> Any:
    """Return the content of a state that is no array and no table; a map as a dict."""
    if saved.dtype == BYTES:
        return bytes(saved.data)
    if saved.dtype == EXPIRING:
        record = json.loads(bytes(saved.data))
        if record["version"] > EXPIRING_VERSION:
            raise StateError(
                f"state {saved.name!r} of version {record['version']} was written by a newer "
                "Holdfast: upgrade Holdfast to read it"
            )
        return rich(record["value"])
    if saved.dtype == MAP:
        return {key_of(key): rich(value) for key, value in json.loads(bytes(saved.data))}
    if saved.dtype != JSON:
        raise StateError(f"state {saved.name!r} is encoded as {saved.dtype!r}, which is unknown")
    return rich(json.loads(bytes(saved.data)))


def key_of(found: Any) -> Key:
    """Return the key of a map from its JSON text."""
    key: Key = tuple(found) if isinstance(found, list) else found
    return key


def rich(value: Any) -> Any:
    """Undo `plain`."""
    if isinstance(value, list):
        return [rich(item) for item in value]
    if not isinstance(value, dict):
        return value
    if _MARK not in value:
        return {key: rich(item) for key, item in value.items()}
    what, content = value[_MARK]
    if what == "bytes":
        return base64.b64decode(content)
    if what == "float":
        return float(content)
    return {key: rich(item) for key, item in content.items()}
