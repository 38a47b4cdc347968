"""Files with their live and dead bytes, the part that pages of pipelines and of queries share."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.cli.pages.elements import Element, element
from holdfast.cli.pages.parts import bar, legend, share_text, size_text, table
from holdfast.cli.pages.tables import Cell, Table
from holdfast.regions.base.printable import printable
from holdfast.regions.checkpoint.physical_files import PhysicalFile

#: Lines of the table of files, and of the table of terms; the largest ones.
MAX_FILES: Final = 300
MAX_TERMS: Final = 100


def live_share(files: Sequence[PhysicalFile]) -> str:
    """Say how much of files is live."""
    whole = sum(file.bytes or 0 for file in files)
    live = sum(file.live_bytes for file in files)
    return f"{size_text(whole)}, {share_text(live, whole)} live"


def files_section(
    files: Sequence[PhysicalFile], *, needed_by: str, writers: str
) -> Iterator[Element]:
    """Yield what files there are, by the term of their writer and one by one.

    Parameters
    ----------
    files : sequence of PhysicalFile
        All files of a folder.
    needed_by : str
        What live bytes are needed by.
    writers : str
        Whose managers have the terms.
    """
    yield element("h2", "Files")
    if not files:
        yield element("p", "There are no files of segments.")
        return
    missing = sum(file.bytes is None for file in files)
    yield element(
        "p",
        f"Live bytes are segments that {needed_by} need. The rest of a file is dead: segments that "
        "they do not need any more or not yet, its header and its footer. A file is deleted when "
        "it is closed and nothing in it is needed. A term is one incarnation of a manager; "
        f"{writers} have one each, and a new one with every start.",
    )
    if missing:
        yield element(
            "p",
            f"Files that are needed but not there: {missing:,}. They are lost, or what needed them "
            "was deleted while this page was made.",
            class_="wrong",
        )
    yield legend({"blue": "live", "grey": "dead"})
    yield element("h3", "By term")
    yield _by_term(files)
    yield element("h3", "One by one")
    # Those with the most dead bytes come first: that is what the reader looks for.
    shown = sorted(files, key=lambda file: (file.bytes is not None, -file.dead_bytes, file.name))
    yield _table("file", shown[:MAX_FILES], len(files))


def _by_term(files: Sequence[PhysicalFile]) -> Element:
    terms: dict[str, list[PhysicalFile]] = {}
    for file in files:
        name = file.name.partition("-")[0]
        terms.setdefault(name, []).append(file)
    sums = [
        PhysicalFile(
            name,
            sum(file.bytes or 0 for file in of_term),
            sum(file.live_segments for file in of_term),
            sum(file.live_bytes for file in of_term),
        )
        for name, of_term in terms.items()
    ]
    sums.sort(key=lambda one: (-(one.bytes or 0), one.name))
    return _table("term", sums[:MAX_TERMS], len(sums), [len(terms[one.name]) for one in sums])


def _table(
    head: str, files: Sequence[PhysicalFile], count: int, of_term: Sequence[int] = ()
) -> Element:
    largest = max(max(file.bytes or 0, file.live_bytes) for file in files)
    rows: list[list[Cell]] = [
        [
            printable(file.name),
            *([of_term[number]] if of_term else []),
            "missing" if file.bytes is None else file.bytes,
            file.live_bytes,
            file.dead_bytes,
            share_text(file.live_bytes, file.bytes or 0),
            file.live_segments,
        ]
        for number, file in enumerate(files)
    ]
    columns = [head, *(["files"] if of_term else []), "bytes", "live bytes", "dead bytes"]
    columns += ["live", "live segments"]
    bars = [
        bar(
            [("blue", file.live_bytes), ("grey", file.dead_bytes)],
            largest,
            said=f"{size_text(file.live_bytes)} live, {size_text(file.dead_bytes)} dead",
        )
        for file in files
    ]
    return table(
        Table(columns, rows, frozenset({head})),
        of=f"{head}s",
        all_rows=count,
        extra={"live and dead": bars},
    )
