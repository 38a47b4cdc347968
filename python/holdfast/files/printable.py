"""Text from data, exceptions and files for a terminal."""

from __future__ import annotations


def printable(text: str) -> str:
    """One line without control characters: names come from data, and causes have any text."""
    return "".join(character if character.isprintable() else " " for character in text)
