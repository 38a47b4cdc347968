"""The names in a class file of the JVM, read without a JVM."""

from __future__ import annotations

import struct
from dataclasses import dataclass

_ABSTRACT = 0x0400
_TEXT, _CLASS, _LONG, _DOUBLE = 1, 7, 5, 6
#: Bytes after the tag, by kind of constant; the specification of the JVM, section 4.4.
_SIZES = {3: 4, 4: 4, _LONG: 8, _DOUBLE: 8, _CLASS: 2, 8: 2, 9: 4, 10: 4, 11: 4, 12: 4, 15: 3}
_SIZES |= {16: 2, 17: 4, 18: 4, 19: 2, 20: 2}


@dataclass(frozen=True)
class ClassFile:
    """A class or trait.

    Attributes
    ----------
    name : str
        With slashes, such as ``java/lang/Object``.
    parents : tuple of str
        Superclass and interfaces.
    abstract : bool
        It has no instances; interfaces are abstract, too.
    texts : frozenset of str
        Names and strings in its constants.
    """

    name: str
    parents: tuple[str, ...]
    abstract: bool
    texts: frozenset[str]


def parse(content: bytes) -> ClassFile:
    """The content of a class file's constants and header."""
    (count,) = struct.unpack_from(">H", content, 8)
    texts: dict[int, str] = {}
    classes: dict[int, int] = {}
    at, number = 10, 1
    while number < count:
        tag = content[at]
        at += 1
        if tag == _TEXT:
            (length,) = struct.unpack_from(">H", content, at)
            texts[number] = content[at + 2 : at + 2 + length].decode(errors="replace")
            at += 2 + length
        else:
            if tag == _CLASS:
                (classes[number],) = struct.unpack_from(">H", content, at)
            at += _SIZES[tag]
        # Constants of eight bytes take two numbers.
        number += 2 if tag in (_LONG, _DOUBLE) else 1
    flags, this, above, interfaces = struct.unpack_from(">HHHH", content, at)
    parents = struct.unpack_from(f">{interfaces}H", content, at + 8)
    return ClassFile(
        name=texts[classes[this]],
        parents=tuple(texts[classes[parent]] for parent in (above, *parents) if parent),
        abstract=bool(flags & _ABSTRACT),
        texts=frozenset(texts.values()),
    )
