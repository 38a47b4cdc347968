"""``holdfast show --html``: a page on a checkpoint folder."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from holdfast._core import SegmentRef
from holdfast.cli import query_state, report
from holdfast.cli.pages import pipeline, query
from holdfast.cli.pages.elements import page
from holdfast.regions.base.durable import explained
from holdfast.regions.base.folders import HISTORY_FOLDER, SEGMENTS_FOLDER
from holdfast.regions.base.paths import AnyPath
from holdfast.regions.checkpoint.history_pages import read_history
from holdfast.regions.checkpoint.physical_files import physical_files
from holdfast.regions.checkpoint.query_folder import (
    STATE_FILES_FOLDER,
    is_query_checkpoint,
    read_query_checkpoint,
)
from holdfast.regions.checkpoint.query_state import (
    StateOfQuery,
    StoredSegment,
    committed_batches,
    entry_of,
    require_committed,
)
from holdfast.regions.checkpoint.read import (
    UNREADABLE,
    checkpoint_ids,
    choose,
    metadata_folder,
    read_metadata,
    summarise_all,
)


def show(folder: AnyPath, id: int | None, file: Path) -> None:
    """Write a page on a checkpoint folder.

    Parameters
    ----------
    folder : Path or HadoopPath
        The folder, of a regional pipeline or of a query.
    id : int or None
        The checkpoint whose regions, or the batch whose stores are listed; the newest if None.
    file : Path
        What to write. Until the page is whole, an older one stays.

    Raises
    ------
    OSError
        If the page cannot be written; or, after it was, if something of the folder cannot be read.
    """
    target = target_of(file)
    if is_query_checkpoint(folder):
        of_query = query_facts(folder, id)
        wrong = of_query.wrong
        text = page(query.title_of(of_query), query.body_of(of_query))
    else:
        of_pipeline = pipeline_facts(folder, id)
        wrong = of_pipeline.wrong
        text = page(pipeline.title_of(of_pipeline), pipeline.body_of(of_pipeline))
    replace(target, text)
    print(f"holdfast: {file} has the page", file=sys.stderr)
    if wrong:
        said = f"{len(wrong)} parts of the checkpoint cannot be read:"
        raise OSError("\n  ".join([said, *wrong]))


def pipeline_facts(folder: AnyPath, id: int | None) -> pipeline.PipelineFacts:
    """Gather what the page of a regional pipeline says."""
    ids = checkpoint_ids(folder)
    if id is not None:
        choose(ids, id, folder)
    summaries, unreadable = summarise_all(folder, ids)
    by_id = {summary.metadata.id: summary.metadata for summary in summaries}
    if id is not None and id not in by_id:
        by_id[id] = read_metadata(folder, id)
    # One more than the page tells of, to know whether there are older ones.
    history = read_history(folder / HISTORY_FOLDER, last=pipeline.MAX_ATTEMPTS + 1)
    return pipeline.PipelineFacts(
        folder=str(folder),
        summaries=summaries,
        shown=by_id[id] if id is not None else summaries[-1].metadata if summaries else None,
        records=history.records[-pipeline.MAX_ATTEMPTS :],
        older=len(history.records) > pipeline.MAX_ATTEMPTS,
        files=physical_files(
            folder / SEGMENTS_FOLDER,
            (
                ref
                for summary in summaries
                for entry in summary.metadata.regions.values()
                for _, _, ref in entry.refs()
            ),
        ),
        wrong=[*unreadable, *history.damage],
    )


def query_facts(folder: AnyPath, id: int | None) -> query.QueryFacts:
    """Gather what the page of a query says: the state of all batches in its log is read."""
    spark = read_query_checkpoint(folder)
    if not query_state.is_there(folder):
        if id is not None:
            metadata_folder(folder)  # which says what the folder is instead
        return query.QueryFacts(spark, (), None, (), (), ())
    logged = committed_batches(folder)
    if id is not None:
        require_committed(folder, id, logged)
    shown, listed = id, list[StoredSegment]()
    state = StateOfQuery(folder)
    batches: list[query.BatchFacts] = []
    needed: set[SegmentRef] = set()
    # A segment of several batches is said once.
    wrong: dict[str, None] = {}
    with report.progress() as bars:
        for batch in logged:
            progress = bars.start(batch, of="batch")
            segments: list[StoredSegment] | None = None
            try:
                segments = list(state.segments(batch))
                found = {one.message: None for one in segments if one.message is not None}
            except UNREADABLE as error:
                found = {str(error): None}
            progress(1, 1)
            # The query may be running, and let go of a batch meanwhile.
            if found and not entry_of(folder, batch).exists():
                continue
            wrong |= found
            if segments is None:
                continue
            batches.append(query.batch_facts(batch, segments, needed))
            if id in (None, batch):
                shown, listed = batch, segments
    return query.QueryFacts(
        query=spark,
        batches=batches,
        shown=shown,
        stores=query.store_facts(listed),
        files=physical_files(folder / STATE_FILES_FOLDER, needed),
        wrong=[*wrong],
    )


def target_of(file: Path) -> Path:
    """Return what is written in the end, before the work on the page begins.

    Raises
    ------
    OSError
        If a file cannot be created there, or if the name is that of something else.
    """
    # A link stays, and leads to the new page.
    target = Path(os.path.realpath(file))
    if target.exists() and not target.is_file():
        raise OSError(f"the page cannot be written to {file}: that is no file")
    if not target.parent.is_dir():
        raise FileNotFoundError(
            f"the page cannot be written to {file}: {target.parent} is no folder"
        )
    if not os.access(target.parent, os.W_OK | os.X_OK):
        raise PermissionError(
            f"the page cannot be written to {file}: no permission to create files in "
            f"{target.parent}"
        )
    return target


def replace(target: Path, text: str) -> None:
    """Put a page in the place of an older one, which stays until the new one is whole.

    Raises
    ------
    OSError
        If it cannot be written.
    """
    staged = target.with_name(f".{target.name}.{os.getpid()}.new")
    with explained("the page cannot be written"):
        try:
            staged.write_text(text, encoding="utf-8")
            staged.replace(target)
        except BaseException:
            staged.unlink(missing_ok=True)
            raise
