"""An exception in a region, on its way from the worker to the caller of the pipeline."""

from __future__ import annotations

import builtins
import json
import sys
import sysconfig
import traceback
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal, cast

# Longer messages do not help, and the connection to the driver has a bound.
TEXT_MAX: Final = 2_000
TRACE_MAX: Final = 20_000
INTEGER_BITS_MAX: Final = 1_024
ATTRIBUTES_MAX: Final = 50
ITEMS_MAX: Final = 100
#: Members of a group of exceptions that its message shows.
MEMBERS_MAX: Final = 3

_PACKAGE: Final = str(Path(__file__).resolve().parents[2])
_LIBRARIES: Final = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"))

_Plain = str | int | float | bool | None


class AtWork:
    """Base class of objects that run an operator or a sink: frames of their methods name it."""

    kind_at_work: Literal["operator", "sink"] = "operator"

    @property
    def operator_name(self) -> str:
        """Name of the operator, as the pipeline gives it; or of the sink."""
        raise NotImplementedError


@dataclass(frozen=True)
class Problem:
    """An exception that made a region fail.

    Parameters
    ----------
    operator : str
        Operator or sink that raised it; empty if none did.
    module, name, arguments
        Class and ``args`` of the exception.
    text : str
        Class and message.
    place : str
        File, line and function of the user's code that ran; empty if none did.
    trace : str
        Trace from the user's code on, without its first line.
    attributes : mapping of str to JSON
        Attributes of the exception that are short and that JSON has.
    rows : str
        Rows of the source that were under way, as far as the source knows them.
    """

    operator: str
    module: str
    name: str
    arguments: tuple[_Plain, ...]
    text: str
    place: str
    trace: str
    at_work: Literal["operator", "sink"] = "operator"
    attributes: Mapping[str, Any] = field(default_factory=dict)
    rows: str = ""

    @classmethod
    def of(cls, error: BaseException, *, rows: str = "") -> Problem:
        """Describe an exception where it was caught."""
        raised = _as_python_keeps(error, "__traceback__")
        frames = list(_frames(raised))
        working = _working(frames)
        own = [frame for frame in frames if _is_users(frame)]
        # The trace of a group ends where its members met: take the trace of a member.
        first = next(_members(error))
        there = _frames(_as_python_keeps(first, "__traceback__"))
        origin = [frame for frame in there if _is_users(frame)] or own
        arguments = _as_python_keeps(error, "args")
        if not all(_is_plain(value) for value in arguments):
            arguments = (message_of(error),)
        return cls(
            operator=working.operator_name if working is not None else "",
            module=type(error).__module__,
            name=type(error).__qualname__,
            arguments=tuple(
                _cut(one, TEXT_MAX) if isinstance(one, str) else one for one in arguments
            ),
            text=_cut(in_words(error), TEXT_MAX),
            place=_place(origin[-1]) if origin else "",
            trace=_trace(error, own[0] if own else raised),
            at_work=working.kind_at_work if working is not None else "operator",
            attributes=_attributes(error),
            rows=rows,
        )

    @property
    def kind(self) -> tuple[str, str, str, str]:
        """Equal for the same exception at the same place."""
        return self.operator, self.module, self.name, self.place

    def headline(self, region: str, checkpoint: int) -> str:
        """Name the failure and its place in a line."""
        what = f"{self.at_work} {self.operator!r} failed in region" if self.operator else "region"
        failed = "" if self.operator else " failed"
        at = f" at {self.place}" if self.place else ""
        at += f", with {self.rows}" if self.rows else ""
        return f"{what} {region!r}{failed} for checkpoint {checkpoint}{at}: {self.text}"

    def error(self, headline: str = "") -> BaseException:
        """Make an exception of the same class, with the trace of the one that was raised.

        It is a RuntimeError if this process does not know the class, or cannot make an instance of
        it. A headline replaces the message, which many classes cannot make without attributes that
        only their ``__init__`` sets.
        """
        kind = _class(self.module, self.name)
        note = "In the task of the region:\n" + self.trace.rstrip()
        try:
            if kind is None:
                raise TypeError
            error = self._made(_saying(kind, headline) if headline else kind)
            # add_note asks classes for attributes that they may not have yet.
            error.__dict__["__notes__"] = [note]
            shown = [str(error), repr(error), "".join(traceback.format_exception(error))]
            if not all(headline in text for text in shown):
                raise TypeError
        except Exception:
            said = headline or self.text
            error = (_saying(RuntimeError, said) if headline else RuntimeError)(said)
            error.add_note(note)
        return error

    def _made(self, kind: type[BaseException]) -> BaseException:
        error: BaseException = kind.__new__(kind, *self.arguments)
        BaseException.args.__set__(error, self.arguments)  # type: ignore[attr-defined]
        error.__dict__.update(self.attributes)
        return error

    def to_bytes(self) -> bytes:
        """Encode it for `from_bytes`."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Problem:
        """Decode the result of `to_bytes`."""
        fields: dict[str, Any] = json.loads(data)
        return cls(**{**fields, "arguments": tuple(fields["arguments"])})


@dataclass(frozen=True)
class Cause:
    """The reason why a region declines; `problem` is the exception, if there was one."""

    text: str
    problem: Problem | None = None

    @classmethod
    def of(cls, error: BaseException, rows: str = "") -> Cause:
        """Describe an exception where it was caught; `rows` were under way."""
        problem = Problem.of(error, rows=rows)
        return cls(problem.text + (f" (with {rows})" if rows else ""), problem)


def message_of(error: BaseException) -> str:
    """Return the message of an exception in valid UTF-8, even if its class fails to make one.

    A KeyError with an integer of thousands of digits fails, and so does a faulty ``__str__``. The
    region has to answer in any case. A group's message ends with messages of its members.
    """
    try:
        message = str(error)
    except BaseException as e:
        message = f"<its message cannot be shown: {type(e).__name__}>"
        with suppress(Exception):
            message = f"{message} {BaseException.__str__(error)}".rstrip()
    if issubclass(type(error), BaseExceptionGroup):
        members = map(in_words, islice(_members(error), MEMBERS_MAX))
        message = f"{message}: {'; '.join(members)}"
    return message.encode(errors="backslashreplace").decode()


def presentable(error: BaseException) -> BaseException:
    """Return the exception, or a stand-in if it, or one in its chain, cannot be shown."""
    seen: list[BaseException] = []
    found: BaseException | None = error
    try:
        while found is not None and not any(found is one for one in seen):
            seen.append(found)
            str(found), repr(found)
            found = found.__context__ if found.__cause__ is None else found.__cause__
        traceback.format_exception(error)
    except BaseException:
        shown = Problem.of(error)
        return shown.error(shown.text)
    return error


def _as_python_keeps(error: BaseException, name: str) -> Any:
    """Return an attribute that every exception has, even if its class hides the name."""
    return getattr(BaseException, name).__get__(error)


def _members(error: BaseException) -> Iterator[BaseException]:
    """Yield the exceptions in a group and in groups within it; a plain exception yields itself."""
    waiting = [error]
    while waiting:
        one = waiting.pop()
        if issubclass(type(one), BaseExceptionGroup):
            waiting += reversed(cast("BaseExceptionGroup[BaseException]", one).exceptions)
        else:
            yield one


def in_words(error: BaseException) -> str:
    """Return the class and the message of an exception, see `message_of`."""
    return f"{type(error).__name__}: {message_of(error)}"


def _trace(error: BaseException, since: TracebackType | None) -> str:
    """Return a trace; without its chain if that cannot be shown."""
    try:
        lines = list(traceback.TracebackException(type(error), error, since).format())
    except Exception:
        lines = [*traceback.format_tb(since), in_words(error)]
    if lines[0] == "Traceback (most recent call last):\n":
        del lines[0]
    trace = "".join(lines)
    # Keep both ends: the first call is at the top, the message at the bottom.
    half = TRACE_MAX // 2
    return trace if len(trace) <= TRACE_MAX else f"{trace[:half]}\n ...\n{trace[-half:]}"


def _attributes(error: BaseException) -> dict[str, Any]:
    found: Mapping[str, Any] = {}
    with suppress(Exception):
        found = vars(error)
    kept = ((name, value) for name, value in found.items() if name[:2] != "__" and _is_sent(value))
    return dict(islice(kept, ATTRIBUTES_MAX))


def _saying(kind: type[BaseException], text: str) -> type[BaseException]:
    """Derive a class of exceptions with a fixed text, which needs no arguments."""
    derived: Any = type(kind)
    return cast(
        "type[BaseException]",
        derived(
            kind.__name__,
            (kind,),
            {
                "__module__": kind.__module__,
                "__qualname__": kind.__qualname__,
                "__str__": lambda self: text,
                "__repr__": lambda self: f"<{kind.__name__}: {text}>",
                # No module has this class, so it cannot be unpickled.
                "__reduce__": lambda self: (RuntimeError, (text,)),
            },
        ),
    )


def _frames(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _is_users(trace: TracebackType) -> bool:
    file = trace.tb_frame.f_code.co_filename
    return not file.startswith(_PACKAGE) and not any(part in file for part in _LIBRARIES)


def _place(trace: TracebackType) -> str:
    (frame,) = traceback.extract_tb(trace, limit=1)
    code = f" ({frame.line})" if frame.line else ""
    return f"{frame.filename}:{frame.lineno}, in {frame.name}{code}"


def _working(frames: list[TracebackType]) -> AtWork | None:
    """Find the innermost operator or sink that a frame belongs to."""
    for trace in reversed(frames):
        instance = trace.tb_frame.f_locals.get("self")
        # isinstance would ask a proxy for the class of its target, which may fail.
        if issubclass(type(instance), AtWork):
            return cast("AtWork", instance)
    return None


def _class(module: str, name: str) -> type[BaseException] | None:
    """Find a class of exceptions among the imported modules; nothing is imported for it."""
    found: Any = builtins if module == "builtins" else sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _is_plain(value: object) -> bool:
    """Return whether JSON has the value: Python writes no integer of thousands of digits."""
    if issubclass(type(value), int):
        return cast("int", value).bit_length() <= INTEGER_BITS_MAX
    return issubclass(type(value), _Plain)


def _is_sent(value: object) -> bool:
    """Return whether JSON has the value, or a list of such values, and its text is short."""
    if issubclass(type(value), str):
        return len(cast("str", value)) <= TEXT_MAX
    values = cast("list[object]", value) if type(value) in (list, tuple) else [value]
    plain = len(values) <= ITEMS_MAX and all(map(_is_plain, values))
    return plain and len(json.dumps(values)) <= TEXT_MAX


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + " ..."
