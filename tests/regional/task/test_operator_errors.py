"""What an operator raises reaches the caller: where, of which class, and its trace once."""

from __future__ import annotations

import asyncio
import copy
import json
import logging
import pickle
import subprocess
import sys
import threading
import traceback
import urllib.error
from collections.abc import Callable, Sequence
from http.client import HTTPMessage
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.regions.base.problem import Problem
from holdfast.regions.coordinator import Declined
from holdfast.regions.protocol import answers
from holdfast.regions.sinks.parquet import ParquetSink
from support.regional.hooks import Hooks
from support.regional.pipelines import COUNTED, Troubled, partitions_of, rows_of

REGIONS = [f"r{number:02}" for number in range(6)]
PRICES = {"apple": 1}


class FeedAwayError(Exception):
    """Of the user's own."""


class Priced(Troubled):
    def process(self, batch: pa.RecordBatch) -> Any:
        batch = next(super().process(batch))
        if self.region in self.failing:
            price_of("pear")
        return batch

    def __init__(self, *failing: str) -> None:
        super().__init__()
        self.failing = failing


def price_of(fruit: str) -> int:
    return PRICES[fruit]


def pipeline(path: Path, operator: hf.Operator, **options: Any) -> hf.LocalQuery:
    return (
        hf.regional(region_by="region")
        .apply(operator, schema=COUNTED, name="priced")
        .write_parquet(path / "out")
        .open_local(path / "ckpt", **options)
    )


def test_a_mistake_names_operator_region_checkpoint_and_line_first_and_keeps_its_class(
    tmp_path: Path,
) -> None:
    with (
        pipeline(tmp_path, Priced(*REGIONS)) as query,
        pytest.raises(hf.RegionalQueryError) as raised,
    ):
        query.run_batch(partitions_of(rows_of(0, REGIONS), 2))
    first, rest = str(raised.value).split("\n")
    assert first.startswith("operator 'priced' failed in region 'r00' for checkpoint 2 at ")
    assert f"{__file__}:" in first
    assert "in price_of (return PRICES[fruit]): KeyError: 'pear'" in first
    assert "every region with rows failed in the same way" in rest
    assert "too many regions" not in rest
    cause = raised.value.__cause__
    assert isinstance(cause, KeyError)
    assert cause.args == ("pear",)
    shown = "".join(traceback.format_exception(raised.value))
    assert shown.count("in price_of\n") == 1
    assert shown.count("\n") < 40


def test_a_region_that_falls_back_has_its_trace_in_the_log_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING), pipeline(tmp_path, Priced("r01")) as query:
        for number in range(2):
            query.run_batch(partitions_of(rows_of(number, REGIONS), 2))
    assert caplog.text.count("operator 'priced' failed in region 'r01' for checkpoint") == 2
    assert caplog.text.count("in price_of\n") == 1


def test_regions_that_fail_in_different_ways_are_too_many(tmp_path: Path, hooks: Hooks) -> None:
    def trouble(region: str, ids: Sequence[int]) -> None:
        raise FeedAwayError(f"no feed for {region}") if region == "r00" else KeyError(region)

    hooks.on_rows = trouble
    with (
        pytest.raises(hf.RegionalQueryError) as raised,
        pipeline(tmp_path, Troubled(hooks)) as query,
    ):
        query.run_batch(partitions_of(rows_of(0, REGIONS), 2))
    assert "FeedAwayError: no feed for r00\n" in str(raised.value)
    assert "too many regions failed: 6 of 6" in str(raised.value)
    assert isinstance(raised.value.__cause__, FeedAwayError)


def test_an_operator_that_exits_fails_its_region_only(tmp_path: Path, hooks: Hooks) -> None:
    def trouble(region: str, ids: Sequence[int]) -> None:
        if region == "r00":
            sys.exit("out of here")

    hooks.on_rows = trouble
    with pipeline(tmp_path, Troubled(hooks)) as query:
        query.run_batch(partitions_of(rows_of(0, REGIONS), 2))
        assert set(query.latest.failed) == {"r00"}


class Exits(Troubled):
    """Fails in one region, and exits when it is closed there."""

    def close(self) -> None:
        if self.region == "r00":
            sys.exit("and out")


def test_an_operator_that_exits_when_it_is_closed_fails_its_region_only(
    tmp_path: Path, hooks: Hooks
) -> None:
    hooks.fail_for("r00", range(1_000))
    with pipeline(tmp_path, Exits(hooks)) as query:
        query.run_batch(partitions_of(rows_of(0, REGIONS), 2))
        assert set(query.latest.failed) == {"r00"}
        assert query.latest.regions["r00"].cause == "RuntimeError: r00 is in trouble"


class SpeechlessError(Exception):
    """Cannot say what it is."""

    def __str__(self) -> str:
        raise AttributeError("no message")


@pytest.mark.parametrize(
    ("raised", "text"),
    [
        (SpeechlessError(), "SpeechlessError: <its message cannot be shown: AttributeError>"),
        (KeyError(10**5_000), "KeyError: <its message cannot be shown: ValueError>"),
        (OSError(2, "no", "\udcff"), "FileNotFoundError: [Errno 2] no: '\\udcff'"),
    ],
)
def test_an_error_without_a_message_fails_its_region_only(
    tmp_path: Path, hooks: Hooks, raised: Exception, text: str
) -> None:
    def trouble(region: str, ids: Sequence[int]) -> None:
        if region == "r00":
            raise raised

    hooks.on_rows = trouble
    with pipeline(tmp_path, Troubled(hooks)) as query:
        query.run_batch(partitions_of(rows_of(0, REGIONS), 2))
        assert set(query.latest.failed) == {"r00"}
        assert query.latest.regions["r00"].cause == text


def problem_of(error: BaseException) -> Problem:
    try:
        raise error
    except BaseException as e:
        return Problem.of(e)


@pytest.mark.parametrize(
    ("raised", "kind", "text"),
    [
        (KeyError("x"), KeyError, "'x'"),
        (FileNotFoundError(2, "No such file"), FileNotFoundError, "[Errno 2] No such file"),
        (FeedAwayError("a", 1), FeedAwayError, "('a', 1)"),
        (ValueError([1, 2]), ValueError, "[1, 2]"),
        (pa.ArrowInvalid("no"), pa.ArrowInvalid, "no"),
        (
            KeyError(10**5_000),
            KeyError,
            "'<its message cannot be shown: ValueError>'",
        ),
    ],
)
def test_an_error_is_made_again_from_what_a_worker_sent(
    raised: BaseException, kind: type[BaseException], text: str
) -> None:
    answer = answers.Answer(
        1, Declined(attempt=7, region="r", cause="why", problem=problem_of(raised))
    )
    (message,) = answers.encode("ab" * 16, [answer])
    _, (read,) = answers.decode(message)
    assert read == answer
    assert isinstance(read.event, Declined)
    assert read.event.problem is not None
    error = read.event.problem.error()
    assert type(error) is kind
    assert str(error) == text
    assert "problem_of" in error.__notes__[0]


def test_an_error_of_an_unknown_class_is_named() -> None:
    class OnlyHereError(Exception):
        pass

    error = problem_of(OnlyHereError("boom")).error()
    assert type(error) is RuntimeError
    assert str(error) == "OnlyHereError: boom"


class OwnInitError(Exception):
    """Keeps nothing of what it is made with in its arguments, and needs a keyword."""

    def __init__(self, *, feed: str, codes: tuple[int, ...]) -> None:
        self.feed = feed
        self.codes = codes

    def __str__(self) -> str:
        return f"boom in {self.feed}: {self.codes[0]}"


class OwnNewError(Exception):
    def __new__(cls, text: str, code: int) -> OwnNewError:
        if not isinstance(code, int):
            raise ValueError("code")
        return super().__new__(cls, text)

    def __init__(self, text: str, code: int) -> None:
        super().__init__(f"{text} {code}")


class MuteError(Exception):
    """Fails whatever it is asked to say, and hides its own parts."""

    __slots__ = ("where",)
    args = property()

    def __init__(self, text: str) -> None:
        self.where = text

    def __str__(self) -> str:
        sys.exit(self.where)

    def __repr__(self) -> str:
        raise KeyboardInterrupt

    def __bool__(self) -> bool:
        raise RecursionError

    @property
    def __notes__(self) -> list[str]:  # type: ignore[override]
        raise OSError("no notes")


class SealedError(Exception):
    def __init_subclass__(cls) -> None:
        raise TypeError("no class may follow")


class GuardedError(BaseException):
    def __getattribute__(self, name: str) -> Any:
        raise PermissionError(name)


class UnpickledError(Exception):
    def __init__(self, text: str) -> None:
        super().__init__(text, threading.Lock())

    def __reduce__(self) -> Any:
        raise TypeError("not to be pickled")


class ElsewhereError(Exception):
    pass


ElsewhereError.__module__ = "a_module.that_the_driver.lacks"


def in_a_cycle() -> Exception:
    error, other = ValueError("boom"), KeyError("other")
    error.__cause__, other.__context__ = other, error
    return error


def in_a_chain(length: int) -> Exception:
    error: Exception = ValueError("first")
    for _ in range(length):
        following = ValueError("boom")
        following.__cause__, error = error, following
    return error


def grouped(depth: int) -> Exception:
    error: Exception = KeyError("boom")
    for _ in range(depth):
        error = ExceptionGroup("unhandled errors", [error, ValueError("other")])
    return error


def noted(error: BaseException, note: str) -> BaseException:
    error.add_note(note)
    return error


RAISED: dict[str, Callable[[], BaseException]] = {
    "CalledProcessError": lambda: subprocess.CalledProcessError(3, ["boom", "--now"]),
    "HTTPError": lambda: urllib.error.HTTPError("http://feed", 404, "boom", HTTPMessage(), None),
    "AxisError": lambda: np.exceptions.AxisError("boom"),
    "own init": lambda: OwnInitError(feed="boom", codes=(7,)),
    "own new": lambda: OwnNewError("boom", 3),
    "mute": lambda: MuteError("boom"),
    "sealed": lambda: SealedError("boom"),
    "guarded": lambda: GuardedError("boom"),
    "not to be pickled": lambda: UnpickledError("boom"),
    "of a module elsewhere": lambda: ElsewhereError("boom"),
    "speechless": lambda: SpeechlessError("boom"),
    "cycle": in_a_cycle,
    "chain": lambda: in_a_chain(3_000),
    "group": lambda: grouped(1),
    "groups in groups": lambda: grouped(5_000),
    "noted": lambda: noted(ValueError("boom"), "from feed 7"),
    "long": lambda: ValueError("boom" + "!" * 1_000_000),
    "many lines": lambda: ValueError("boom\n" * 10_000),
    "no UTF-8": lambda: ValueError("boom \udcff \0"),
    "KeyError": lambda: KeyError(("boom", "it's", 'a "key"')),
    "SyntaxError": lambda: SyntaxError("boom", ("file", 3, 1, "text", 3, 4)),
    "UnicodeDecodeError": lambda: UnicodeDecodeError("utf-8", b"x", 0, 1, "boom"),
    "JSONDecodeError": lambda: json.JSONDecodeError("boom", "{", 1),
    "ArrowInvalid": lambda: pa.ArrowInvalid("boom"),
    "StopIteration": lambda: StopIteration("boom"),
    "GeneratorExit": lambda: GeneratorExit("boom"),
    "KeyboardInterrupt": lambda: KeyboardInterrupt("boom"),
    "SystemExit": lambda: SystemExit("boom"),
}


def every_error_of(error: BaseException | None) -> list[BaseException]:
    found: list[BaseException] = []
    while error is not None:
        found.append(error)
        error = error.__cause__ or error.__context__
    return found


@pytest.mark.parametrize("kind", RAISED)
def test_whatever_is_raised_every_error_says_what_failed_where(
    tmp_path: Path, hooks: Hooks, kind: str
) -> None:
    def trouble(region: str, ids: Sequence[int]) -> None:
        raise RAISED[kind]()

    hooks.on_rows = trouble
    line = trouble.__code__.co_firstlineno + 1
    with (
        pytest.raises(hf.RegionalQueryError) as failed,
        pipeline(tmp_path, Troubled(hooks)) as query,
    ):
        query.run_batch(partitions_of(rows_of(0, REGIONS[:2]), 1))
    errors = every_error_of(failed.value)
    assert len(errors) == 2
    for error in errors:
        for text in (str(error), repr(error), "".join(traceback.format_exception(error))):
            assert "operator 'priced' failed in region 'r00'" in text
            assert f"{__file__}:{line}" in text
            assert "boom" in text
            assert len(text) < 100_000
        assert "boom" in str(copy.copy(error))
        assert pickle.dumps(error)


def test_the_cause_has_the_class_and_the_attributes_of_what_was_raised(
    tmp_path: Path, hooks: Hooks
) -> None:
    def trouble(region: str, ids: Sequence[int]) -> None:
        raise subprocess.CalledProcessError(3, ["false", "-x"], output="out", stderr=b"err")

    hooks.on_rows = trouble
    with (
        pytest.raises(hf.RegionalQueryError) as failed,
        pipeline(tmp_path, Troubled(hooks)) as query,
    ):
        query.run_batch(partitions_of(rows_of(0, REGIONS[:2]), 1))
    cause = failed.value.__cause__
    assert isinstance(cause, subprocess.CalledProcessError)
    assert (cause.returncode, cause.cmd, cause.output) == (3, ["false", "-x"], "out")


def test_a_group_names_its_members_and_the_place_of_the_first(tmp_path: Path, hooks: Hooks) -> None:
    async def ask(feed: str) -> None:
        raise ConnectionError(f"no {feed}")

    async def ask_all() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(ask("feed"))
            tasks.create_task(ask("other feed"))

    hooks.on_rows = lambda region, ids: asyncio.run(ask_all())
    with (
        pytest.raises(hf.RegionalQueryError) as failed,
        pipeline(tmp_path, Troubled(hooks)) as query,
    ):
        query.run_batch(partitions_of(rows_of(0, REGIONS[:2]), 1))
    first = str(failed.value).splitlines()[0]
    assert "in ask (raise ConnectionError" in first
    assert first.endswith("ConnectionError: no feed; ConnectionError: no other feed")
    assert "In the task" in "".join(traceback.format_exception(failed.value))


def test_the_end_of_a_long_trace_is_kept() -> None:
    def first(left: int) -> None:
        second(left)

    def second(left: int) -> None:
        if not left:
            raise ValueError("boom")
        first(left - 1)

    try:
        first(300)
    except ValueError as error:
        trace = Problem.of(error).trace
    assert trace.endswith("ValueError: boom\n")
    assert "in test_the_end_of_a_long_trace_is_kept" in trace
    assert len(trace) < 21_000


class BoomingSink(ParquetSink):
    def commit(self, checkpoint: int, staged: Any) -> None:
        raise MuteError("boom")


def test_a_sink_may_raise_what_cannot_be_shown(tmp_path: Path) -> None:
    writer = hf.regional(region_by="region").apply(Priced(), schema=COUNTED, name="priced")
    with (
        pytest.raises(hf.SinkFailedError, match="boom") as failed,
        writer.write_to(BoomingSink(tmp_path / "out")).open_local(tmp_path / "ckpt") as query,
    ):
        query.run_batch(partitions_of(rows_of(0, REGIONS[:2]), 1))
    for error in every_error_of(failed.value):
        for text in (str(error), repr(error), "".join(traceback.format_exception(error))):
            assert "boom" in text


PROGRAM = """
import pathlib, sys, pyarrow as pa, holdfast as hf

class Priced(hf.Operator):
    region_safe = True

    def process(self, batch):
        return {"apple": 1}[batch["fruit"][0].as_py()]

rows = pa.record_batch({"region": ["eu"], "fruit": ["pear"]})
folder = pathlib.Path(sys.argv[1])
pipeline = hf.regional(region_by="region").apply(Priced(), schema=rows.schema, name="priced")
with pipeline.write_parquet(folder / "out").open_local(folder / "ckpt") as query:
    query.run_batch([[rows]])
"""


def test_a_mistake_prints_one_trace_that_begins_and_ends_with_what_failed(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAM)
    done = subprocess.run(
        [sys.executable, program, tmp_path], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 1
    lines = done.stderr.splitlines()
    for line in (lines[0], lines[-1]):
        assert "operator 'priced' failed in region 'eu' for checkpoint 2 at " in line
        assert f"{program}:8, in process" in line
        assert line.endswith("KeyError: 'pear'")
    assert done.stderr.count("Traceback (most recent call last)") == 1
    assert len(lines) < 20
