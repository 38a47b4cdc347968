"""What went wrong in a region, on its way from the worker to the caller of the pipeline."""

from __future__ import annotations

import builtins
import json
import sys
import sysconfig
import traceback
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Literal

# Longer ones are of no use in a message, and the connection to the driver has a bound.
TEXT_MAX: Final = 2_000
TRACE_MAX: Final = 20_000
INTEGER_BITS_MAX: Final = 1_024

_PACKAGE: Final = str(Path(__file__).resolve().parents[2])
_LIBRARIES: Final = ("site-packages", "dist-packages", sysconfig.get_path("stdlib"))

_Plain = str | int | float | bool | None


class AtWork:
    """What a frame belongs to while an operator or a sink runs: base class of what runs them.

    Attributes
    ----------
    operator_name : str
        Name of the operator, as the pipeline gives it; or of the sink.
    kind_at_work : {"operator", "sink"}
        Which of them it is.
    """

    operator_name: str
    kind_at_work: Literal["operator", "sink"] = "operator"


@dataclass(frozen=True)
class Problem:
    """An exception that made a region fail.

    Parameters
    ----------
    operator : str
        Name of the operator or sink that raised it; empty if none did.
    module, name : str
        Of its class.
    arguments : tuple of str, int, float, bool or None
        What it was made with.
    text : str
        Class and message.
    place : str
        File, line and function of the user's code that was at work; empty if none was.
    trace : str
        Its trace, from the user's code on.
    at_work : {"operator", "sink"}
        What raised it, if `operator` says so.
    """

    operator: str
    module: str
    name: str
    arguments: tuple[_Plain, ...]
    text: str
    place: str
    trace: str
    at_work: Literal["operator", "sink"] = "operator"

    @classmethod
    def of(cls, error: BaseException) -> Problem:
        """Describe an exception where it was caught."""
        frames = list(_frames(error.__traceback__))
        working = _working(frames)
        own = [frame for frame in frames if _is_users(frame)]
        message = message_of(error)
        arguments = error.args
        if not all(_is_plain(value) for value in arguments):
            arguments = (message,)
        shown = traceback.TracebackException(
            type(error), error, own[0] if own else error.__traceback__
        )
        return cls(
            operator=working.operator_name if working is not None else "",
            module=type(error).__module__,
            name=type(error).__qualname__,
            arguments=tuple(_short(value) for value in arguments),
            text=_cut(f"{type(error).__name__}: {message}", TEXT_MAX),
            place=_place(own[-1]) if own else "",
            trace=_cut("".join(shown.format()), TRACE_MAX),
            at_work=working.kind_at_work if working is not None else "operator",
        )

    @property
    def kind(self) -> tuple[str, str, str, str]:
        """Equal for the same mistake at the same place."""
        return self.operator, self.module, self.name, self.place

    def headline(self, region: str, checkpoint: int) -> str:
        """Say in a line what failed where."""
        what = f"{self.at_work} {self.operator!r} failed in region" if self.operator else "region"
        failed = "" if self.operator else " failed"
        at = f" at {self.place}" if self.place else ""
        return f"{what} {region!r}{failed} for checkpoint {checkpoint}{at}: {self.text}"

    def error(self) -> BaseException:
        """Make an exception of the same class, with the trace of the one that was raised.

        Of a class that this process does not know, it is a RuntimeError which names that.
        """
        kind = _class(self.module, self.name)
        error: BaseException
        try:
            if kind is None:
                raise TypeError
            error = kind.__new__(kind, *self.arguments)
            error.args = self.arguments
        except Exception:
            error = RuntimeError(self.text)
        error.add_note("In the task of the region:\n" + self.trace.rstrip())
        return error

    def to_bytes(self) -> bytes:
        """Encode it for its way; `from_bytes` reads that."""
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_bytes(cls, data: bytes) -> Problem:
        """Decode what `to_bytes` made."""
        fields: dict[str, Any] = json.loads(data)
        return cls(**{**fields, "arguments": tuple(fields["arguments"])})


def message_of(error: BaseException) -> str:
    """Return the message of an exception, also of one that fails to say it.

    Such as a KeyError with an integer of thousands of digits, or a class whose ``__str__`` has a
    mistake. The region has to answer all the same.
    """
    try:
        return str(error)
    except Exception as e:
        return f"<its message cannot be shown: {type(e).__name__}>"


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
    """Find what was at work: the innermost instance that a frame belongs to."""
    for trace in reversed(frames):
        instance = trace.tb_frame.f_locals.get("self")
        if isinstance(instance, AtWork):
            return instance
    return None


def _class(module: str, name: str) -> type[BaseException] | None:
    """Find a class of exceptions among what is imported; nothing is imported for it."""
    found: Any = builtins if module == "builtins" else sys.modules.get(module)
    for part in name.split("."):
        found = getattr(found, part, None)
    return found if isinstance(found, type) and issubclass(found, BaseException) else None


def _is_plain(value: object) -> bool:
    """Say whether JSON has it; Python writes no integer of more than some thousand digits."""
    if isinstance(value, int):
        return value.bit_length() <= INTEGER_BITS_MAX
    return isinstance(value, _Plain)


def _short(value: _Plain) -> _Plain:
    return _cut(value, TEXT_MAX) if isinstance(value, str) else value


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else text[:length] + " ..."
