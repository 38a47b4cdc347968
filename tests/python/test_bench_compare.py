"""``benches/run.py compare``: what two result files say of each other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from common.compare import Change

pytest.importorskip("rich")

BENCHES = Path(__file__).parents[2] / "benches"


@pytest.fixture(autouse=True)
def _benches_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHES), *sys.path])


def saved(
    folder: Path, values: Mapping[str, Mapping[str, Sequence[float]]], *, name: str = "some"
) -> Path:
    """A result file: by provider and metric one figure for each round."""
    from common import report
    from common.rounds import Metric, Run

    runs = [
        Run(
            provider=provider,
            round_number=number,
            load=0.0,
            values={metric: [figures[number]] for metric, figures in of_metrics.items()},
        )
        for provider, of_metrics in values.items()
        for number in range(len(next(iter(of_metrics.values()))))
    ]
    metrics = [
        Metric(name="batch_ms", title="batch time, ms"),
        Metric(name="rate", title="rows per second", more_is_better=True),
    ]
    result = report.Result(
        name=name, plan={"rounds": 2}, metrics=metrics, targets=(), runs=runs, notes=""
    )
    return report.save(result, versions="Spark", folder=folder)


def compared(before: Path, after: Path) -> dict[tuple[str, str, str | None], Change]:
    from common.compare import changes, read

    found = changes(read(before), read(after))
    return {(one.metric.name, one.provider, one.base): one for one in found}


@pytest.mark.parametrize(
    ("after", "verdict"),
    [([8, 9], "better"), ([21, 30], "worse"), ([15, 40], "within the noise")],
)
def test_ranges_that_do_not_overlap_are_beyond_the_noise(
    tmp_path: Path, after: list[float], verdict: str
) -> None:
    found = compared(
        saved(tmp_path / "a", {"holdfast": {"batch_ms": [10, 20]}}),
        saved(tmp_path / "b", {"holdfast": {"batch_ms": after}}),
    )
    assert {key: one.verdict for key, one in found.items()} == {
        ("batch_ms", "holdfast", None): verdict
    }


def test_less_of_a_rate_is_worse(tmp_path: Path) -> None:
    before = saved(tmp_path / "a", {"holdfast": {"rate": [100, 110]}})
    after = saved(tmp_path / "b", {"holdfast": {"rate": [80, 90]}})
    assert [one.verdict for one in compared(before, after).values()] == ["worse"]
    assert [one.verdict for one in compared(after, before).values()] == ["better"]


def test_where_both_have_a_ratio_a_slow_machine_is_no_difference(tmp_path: Path) -> None:
    before = {"rocksdb": {"batch_ms": [100, 110]}, "holdfast": {"batch_ms": [50, 55]}}
    after = {"rocksdb": {"batch_ms": [300, 290]}, "holdfast": {"batch_ms": [150, 145]}}
    found = compared(saved(tmp_path / "a", before), saved(tmp_path / "b", after))
    assert found["batch_ms", "holdfast", "rocksdb"].verdict == "within the noise"
    assert ("batch_ms", "holdfast", None) not in found
    # The base itself has nothing to be divided by.
    assert found["batch_ms", "rocksdb", None].verdict == "worse"


def run(*files: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHES / "run.py"), "compare", *map(str, files)],
        capture_output=True,
        text=True,
    )


def test_the_command_prints_what_changed_and_fails_where_something_got_worse(
    tmp_path: Path,
) -> None:
    before = saved(tmp_path / "a", {"holdfast": {"batch_ms": [10, 20], "rate": [5, 6]}})
    after = saved(tmp_path / "b", {"holdfast": {"batch_ms": [40, 50], "rate": [5, 6]}})
    done = run(before, after)
    assert done.returncode == 1
    lines = [" ".join(line.split()) for line in done.stdout.splitlines()]
    assert "batch time, ms Holdfast - 15 (10..20) 45 (40..50) 3.000 worse" in lines
    assert "1 of 2 got worse beyond the noise" in done.stdout
    assert run(before, before).returncode == 0


def test_files_of_two_benchmarks_and_other_files_are_refused(tmp_path: Path) -> None:
    one = saved(tmp_path / "a", {"holdfast": {"batch_ms": [1, 2]}})
    other = saved(tmp_path / "b", {"holdfast": {"batch_ms": [1, 2]}}, name="other")
    done = run(one, other)
    assert (done.returncode, done.stdout) == (2, "")
    assert "expected two results of one benchmark, found some and other" in done.stderr
    no_result = tmp_path / "no.json"
    no_result.write_text("[]")
    assert f"{no_result} is no result of benches/run.py" in run(one, no_result).stderr
    assert f"{tmp_path / 'none'} is no result" in run(tmp_path / "none", one).stderr
