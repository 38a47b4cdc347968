"""What an operator raises reaches the caller: where, of which class, and its trace once."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import holdfast as hf
from holdfast.regions.base.problem import Problem
from holdfast.regions.coordinator import Declined
from holdfast.regions.protocol import answers
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
