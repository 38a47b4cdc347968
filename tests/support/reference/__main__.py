"""``python -m support.reference`` writes the tables that are made of declarations."""

from __future__ import annotations

from support.markdown import with_tables
from support.reference import settings

if __name__ == "__main__":
    document = settings.DOCUMENT
    document.write_text(with_tables(document.read_text(), settings.tables()))
