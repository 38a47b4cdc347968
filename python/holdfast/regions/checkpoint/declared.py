"""Compares the states of a checkpoint with declarations of operators, before a start continues.

Operators declare their state in `open` (R78). So operators are opened and closed again, where they
run. `open` may declare one state by the content of another one, so it finds the states of the
checkpoint, except for large ones. If `open` fails, its regions are checked when they run: the first
one whose state has another form ends the attempt, and the query.
"""

from __future__ import annotations

import logging
import queue
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import islice
from typing import Any, Final, TypeAlias

from holdfast._core import CheckpointMetadata, OperatorEntry, RegionEntry, StateEntry
from holdfast.files.segments import StoredSegments, stored_segments
from holdfast.regions.base.errors import LayoutChangedError
from holdfast.regions.base.owners import RegionOwners
from holdfast.regions.base.problem import in_words
from holdfast.regions.base.saved import SavedState, StateKind
from holdfast.regions.checkpoint.layout import Layout, StageLayout
from holdfast.regions.files.folders import PIPELINE_PROPERTY, CheckpointFolders
from holdfast.regions.protocol.orders import PipelinePlan, StagePlan
from holdfast.regions.state.kinds.kind import (
    ADVICE,
    Kind,
    StateOptions,
    changed,
    form_of,
    undeclared,
)
from holdfast.regions.state.kinds.restoring import Evolve
from holdfast.regions.state.registry import StateRegistry
from holdfast.regions.state.segments import read_operator
from holdfast.regions.task.array_modules import array_module
from holdfast.regions.task.operators import OperatorContext

LOG: Final = logging.getLogger(__name__)

#: Regions in which an instance is opened in addition to one for each form of its states; and the
#: seconds that this may take.
_OPENED: Final = 20
_OPENING_S: Final = 2.0

#: Larger states are not read, and states declared with them are not refused. Larger arrays are not
#: filled, so most of their pages are never touched.
_LARGE_BYTES: Final = 1024 * 1024

#: Problems that a message names.
_NAMED: Final = 5

_Forms: TypeAlias = tuple[tuple[str, str], ...]

_Content: TypeAlias = tuple[str, StateKind, str, tuple[int, ...], bytes]
"""Name, kind, data type, shape and data of a `SavedState`, which cannot be pickled."""


@dataclass(frozen=True)
class _Saved:
    """States that an instance finds in a region, and their forms by name.

    `contents` is None if no instance has to open there. It lacks large arrays; if not `complete`,
    other states as well.
    """

    region: str
    forms: _Forms
    contents: tuple[_Content, ...] | None
    complete: bool = True


@dataclass
class Comparison:
    """Result of a comparison.

    `changed` are regions with a state to convert or drop. `problems` are states that do not fit:
    the first region of each operator, state and pair of forms. `unopened` says by the name of an
    operator why it did not open.
    """

    changed: set[str] = field(default_factory=set)
    problems: dict[object, str] = field(default_factory=dict)
    unopened: dict[str, str] = field(default_factory=dict)


Compare: TypeAlias = Callable[[], Comparison]
"""Opens operators; may be pickled."""

RunCompare: TypeAlias = Callable[[Compare, float], Comparison]
"""Runs a comparison where operators run, for so many seconds at most; raises if it cannot."""


def run_here(compare: Compare, timeout_s: float) -> Comparison:
    """Compare in this process. See `RunCompare`."""
    answers = queue.SimpleQueue[Comparison]()
    # Code of the user may never return.
    threading.Thread(target=lambda: answers.put(compare()), daemon=True).start()
    try:
        return answers.get(timeout=timeout_s)
    except queue.Empty:
        raise TimeoutError("open() of an operator did not return within region_timeout") from None


def changed_regions(
    folders: CheckpointFolders,
    metadata: CheckpointMetadata,
    plan: PipelinePlan,
    *,
    old: Layout,
    run: RunCompare,
) -> frozenset[str]:
    """Return the regions with a state to convert or drop.

    Raises a LayoutChangedError if a state has another form than declared and is not converted, or
    is not declared and not dropped.
    """
    groups = metadata.samples()
    # The first region of each group, and as many others as may be opened.
    others = islice((entry for group in groups for entry in group[1:]), _OPENED)
    regions = [*(group[0] for group in groups), *others]
    pipeline = metadata.properties.get(PIPELINE_PROPERTY, plan.pipeline)
    with stored_segments(folders.segments) as stored:
        saved = [list(_saved(*of, regions, old, stored, pipeline)) for of in _instances(plan)]
    # The layouts were compared before, so missing operators are allowed.
    names = [stage.name for stage in plan.stages]
    gone = [name for stage in old.stages if stage.name not in names for name in stage.instances]
    found = Comparison()
    if any(saved):
        try:
            found = run(partial(compared, plan, saved), plan.options.region_timeout_ms / 1000)
        except Exception as error:
            found.unopened = {stage.name: in_words(error) for stage in plan.stages}
    for name, cause in found.unopened.items():
        LOG.warning(
            "the state that operator %r declares is compared with checkpoint %d when its regions "
            "run, since it is not known at the start: %s",
            name,
            metadata.id,
            cause,
        )
    if problems := list(found.problems.values()):
        more = f"; and {len(problems) - _NAMED} more" if len(problems) > _NAMED else ""
        raise LayoutChangedError(
            f"checkpoint {metadata.id} does not fit the pipeline, so nothing was begun or changed. "
            f"{'; '.join(problems[:_NAMED])}{more}. {ADVICE}"
        )
    dropped = {
        entry.region
        for entry in regions
        if any(operator.name in gone and operator.states for operator in entry.operators)
    }
    changed = found.changed | dropped
    # The other regions of a group are like its first one.
    looked_at = {entry.region for entry in regions}
    first = {group[0].region for group in groups} & changed
    for group in metadata.alike() if first else ():
        if not first.isdisjoint(group):
            changed.update(region for region in group if region not in looked_at)
    return frozenset(changed)


def compared(plan: PipelinePlan, saved: Sequence[Sequence[_Saved]]) -> Comparison:
    """Open the instances of operators and compare their declarations with what is `saved`."""
    found, begun = Comparison(), time.monotonic()
    for (stage, index), of_regions in zip(_instances(plan), saved, strict=True):
        of_first: dict[_Forms, bool] = {}
        for one in of_regions:
            fits = of_first.get(one.forms)
            # An operator may declare something else in one region than in another.
            in_time = time.monotonic() - begun < _OPENING_S
            if one.contents is not None and (fits is None or in_time):
                try:
                    declared = _declared(plan, stage, index, one)
                except BaseException as error:  # also sys.exit()
                    found.unopened[stage.name] = in_words(error)
                    break
                fits = _fits(plan, stage, one, declared, found)
                of_first.setdefault(one.forms, fits)
            if not fits:
                found.changed.add(one.region)
    return found


class _OnlyDeclared(StateRegistry):
    """States of an instance without rows: nothing is converted or refused.

    `forms` has the form of every declared state, and whether it converts others.
    """

    def __init__(self, xp: Any, stage: StagePlan, index: int, found: Iterable[SavedState]) -> None:
        options = StateOptions(only_declared=True)
        super().__init__(xp, found, instance=index, parallelism=stage.parallelism, options=options)
        self.forms: dict[str, tuple[str, bool]] = {}

    def _take(self, state: Kind, evolve: Evolve) -> SavedState | None:
        self.forms[state.name] = state.form, evolve is not None
        saved = self._saved.get(state.name)
        return saved if saved is not None and form_of(saved) == state.form else None


def _declared(
    plan: PipelinePlan, stage: StagePlan, index: int, saved: _Saved
) -> Mapping[str, tuple[str, bool]]:
    """Return the declarations of an instance."""
    xp = array_module(gpu=plan.options.gpu)
    contents = saved.contents or ()
    found = [SavedState(*content[:4], memoryview(content[4])) for content in contents]
    registry = _OnlyDeclared(xp, stage, index, found)
    operator = stage.new_operator()
    try:
        operator.open(
            OperatorContext(
                region=saved.region,
                operator=stage.name,
                instance=index,
                parallelism=stage.parallelism,
                state=registry,
                xp=xp,
            )
        )
        operator.close()
    finally:
        registry.close()
    return registry.forms


def _fits(
    plan: PipelinePlan,
    stage: StagePlan,
    saved: _Saved,
    declared: Mapping[str, tuple[str, bool]],
    found: Comparison,
) -> bool:
    """Return whether nothing is converted or dropped; notes what cannot be."""
    drops: tuple[None, bool] = None, plan.options.drop_undeclared_state
    fits = True
    for name, form in saved.forms:
        now, evolves = declared.get(name, drops)
        if now == form:
            continue
        fits = False
        if not evolves and not saved.complete:
            found.unopened[stage.name] = "it has a state above 1 MiB, which is not read before"
        elif not evolves:
            where = f"state {name!r} of operator {stage.name!r} in region {saved.region!r}"
            text = changed(where, saved=form, declared=now) if now else undeclared(where, form)
            found.problems.setdefault((stage.name, name, form, now), text)
    return fits


def _instances(plan: PipelinePlan) -> Iterator[tuple[StagePlan, int]]:
    for stage in plan.stages:
        for index in range(stage.parallelism):
            yield stage, index


def _saved(
    stage: StagePlan,
    index: int,
    regions: Sequence[RegionEntry],
    old: Layout,
    stored: StoredSegments,
    pipeline: str,
) -> Iterator[_Saved]:
    """Yield the states that an instance would find, or the states that it is made from."""
    before = old.stage(stage.name) or StageLayout(stage.name, 0, ())
    same = before.parallelism == stage.parallelism
    names = [stage.instance_name(index)] if same else before.instances
    known: dict[_Forms, _Forms] = {}  # of ten thousand regions, most are in few forms
    opened = 0
    for entry in regions:
        found = {
            state.name: (operator.name, state)
            for operator in entry.operators
            if operator.name in names
            for state in operator.states
        }
        if not found:
            continue
        forms = tuple((name, form_of(state)) for name, (_, state) in sorted(found.items()))
        if forms in known and opened >= _OPENED:
            yield _Saved(entry.region, known[forms], None)
            continue
        opened += 1
        contents = _contents(stored, RegionOwners(pipeline, entry.region), found.values())
        yield _Saved(entry.region, known.setdefault(forms, forms), *contents)


def _contents(
    stored: StoredSegments, owners: RegionOwners, states: Iterable[tuple[str, StateEntry]]
) -> tuple[tuple[_Content, ...], bool]:
    """Read states, given with their operators; also returns whether only arrays are missing."""
    contents: list[_Content] = []
    complete = True
    for operator, state in states:
        large = sum(piece.length for piece in state.pieces) > _LARGE_BYTES
        large |= state.kind == "table" and form_of(state) in ("a list", "a map")
        if state.pieces and (large or state.kind == "array"):
            complete &= state.kind == "array"
            continue
        try:
            (read,) = read_operator(stored, owners, OperatorEntry(operator, [state]))
        except OSError:
            # A start with verify_state=False leaves damage to the region that has it.
            complete = False
        else:
            contents.append((read.name, read.kind, read.dtype, read.shape, bytes(read.data)))
    return tuple(contents), complete
