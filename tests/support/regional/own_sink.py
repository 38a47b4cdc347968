"""The sinks of docs/regional/own-sink.md, for its readers."""

from __future__ import annotations

import sqlite3
import sys
import types
from contextlib import closing
from pathlib import Path
from typing import Any

import holdfast as hf
from support import TESTS
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, Troubled
from support.spark.readme import blocks


def _documented() -> types.ModuleType:
    texts = [
        block.text
        for block in blocks(TESTS.parent / "docs" / "regional" / "own-sink.md")
        if "Sink(" in block.text
    ]
    assert len(texts) == 2
    module = types.ModuleType("documented_sink")
    sys.modules[module.__name__] = module
    for text in texts:
        classes, query, _ = text.partition("\nquery = ")
        assert query, "behind the classes comes the pipeline"
        exec(compile(classes, "docs/regional/own-sink.md", "exec"), module.__dict__)  # noqa: S102
    return module


documented = _documented()
SqliteSink: Any = documented.SqliteSink
SharingSink: Any = documented.SharingSink
WaitingRows: Any = documented.WaitingRows


def open_pipeline(
    sink: Any, checkpoint: Path, *, hooks: Hooks | None = None, **options: Any
) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(Troubled(hooks), schema=COUNTED, name="count")
        .write_to(sink)
        .open_local(checkpoint, **options)
    )


def rows_in(database: Path) -> list[tuple[Any, ...]]:
    """All rows that a reader of the database sees, in the form of `pipelines.expected`."""
    if not database.exists():
        return []
    with closing(sqlite3.connect(database)) as db:
        if not db.execute("SELECT 1 FROM sqlite_master WHERE name = 'rows'").fetchone():
            return []
        found = db.execute(
            "SELECT json_extract(row, '$.region'), json_extract(row, '$.id'), "
            "json_extract(row, '$.seen'), json_extract(row, '$.of_key') FROM rows"
        )
        return sorted(found)
