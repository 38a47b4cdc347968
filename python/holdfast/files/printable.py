"""Text from data, from exceptions and from files, on its way to a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """One line without control characters: names come from data, and causes from anywhere."""
    return "".join(character if character.isprintable() else " " for character in text)
