"""``benches/run.py report``: pictures and tables of result files."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

pytest.importorskip("matplotlib")

BENCHES = Path(__file__).parents[2] / "benches"
PROVIDERS = ("spark", "rocksdb-changelog", "holdfast")


@pytest.fixture(autouse=True)
def _benches_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHES), *sys.path])


def saved(
    folder: Path,
    *,
    partitions: int = 200,
    metrics: Sequence[str] = ("batch_ms", "objects"),
    rounds: int = 2,
    **more: Any,
) -> Path:
    """A result file: a figure of every metric in each round is its number and the partitions'."""
    from common import report
    from common.rounds import Run
    from common.targets import Target
    from spark.cases import BATCH, COMMIT, OBJECTS

    values = {
        name: [partitions * 10.0 + place for place in range(2)]
        for name in metrics
        if name != "commit_ms"
    }
    runs = [
        Run(provider=provider, round_number=number, load=0.5, values=values)
        for provider in PROVIDERS
        for number in range(rounds)
    ]
    of_name = {metric.name: metric for metric in (BATCH, OBJECTS, COMMIT)}
    result = report.Result(
        name=f"groupby-count-{partitions}",
        plan={"partitions": partitions, "rounds": rounds, **more},
        metrics=[of_name[name] for name in metrics],
        targets=(Target(metric=BATCH, at_most=0.5, to="spark"),),
        runs=runs,
        notes="Of <warm> batches.",
    )
    return report.save(
        result,
        versions="Spark 4.3.0",
        folder=folder / str(partitions),
        described="An aggregation.\nTwo batches.",
        command="benches/run.py many --rounds 2",
    )


def read(*files: Path) -> list[Mapping[str, Any]]:
    from common.compare import read

    return [read(file) for file in files]


def picture(file: Path) -> Figure:
    from common.pictures import of_record

    made = of_record(*read(file))
    assert made is not None
    return made


def swept(*files: Path) -> Iterator[tuple[str, Figure]]:
    from common.pictures import of_sweeps

    return of_sweeps(read(*files))


def titles(made: Figure) -> list[str]:
    return [axes.get_title("left") + axes.get_title("right") for axes in made.axes]


def dots(axes: Axes) -> int:
    return sum(len(line.get_xdata()) for line in axes.lines if line.get_alpha() == 0.5)


def texts(made: Figure) -> list[str]:
    return [text.get_text() for axes in made.axes for text in axes.texts]


def test_every_figure_of_every_round_is_drawn_with_where_it_comes_from(tmp_path: Path) -> None:
    made = picture(saved(tmp_path))
    assert titles(made) == ["batch time, ms", "objects per batch"]
    assert [dots(axes) for axes in made.axes] == [len(PROVIDERS) * 2 * 2] * 2
    assert [label.get_text() for label in made.axes[0].get_yticklabels()][-1] == "Holdfast"
    assert texts(made)[len(PROVIDERS) - 1] == "2,000 (2,000..2,001)"
    for part in ("2 rounds", "Spark 4.3.0", "benches/run.py many --rounds 2", "load 0.5", "Z"):
        assert part in made.get_supxlabel()


def test_what_was_not_measured_is_not_drawn(tmp_path: Path) -> None:
    made = picture(saved(tmp_path, metrics=("batch_ms", "commit_ms")))
    assert titles(made) == ["batch time, ms"]


def test_results_that_differ_in_one_quantity_make_lines_over_it(tmp_path: Path) -> None:
    ((quantity, made),) = swept(*(saved(tmp_path, partitions=count) for count in (800, 20, 200)))
    assert quantity == "partitions"
    assert titles(made) == ["batch time, ms", "objects per batch"]
    axes = made.axes[0]
    assert axes.get_xlabel() == "partitions"
    lines = {line.get_label(): line for line in axes.lines if line.get_label()[0] != "_"}
    found = lines["Holdfast"]
    assert [*zip(found.get_xdata(), found.get_ydata(), strict=True)] == [
        (20, 200.5),
        (200, 2_000.5),
        (800, 8_000.5),
    ]
    assert dots(axes) == 3 * len(PROVIDERS) * 2 * 2
    assert "2 rounds" in made.get_supxlabel()
    # No two lines have the same marks and dashes.
    assert len({(line.get_marker(), line.get_linestyle()) for line in lines.values()}) == len(lines)
    assert len(lines) == len(PROVIDERS)


@pytest.mark.parametrize("other", [{"rounds": 3}, {"rows": 5}])
def test_results_that_differ_in_more_make_none(tmp_path: Path, other: Mapping[str, Any]) -> None:
    files = (saved(tmp_path), saved(tmp_path, partitions=20, **other))
    assert [*swept(*files)] == []
    assert [len(picture(file).axes) for file in files] == [2, 2]


def test_results_of_two_machines_make_no_line(tmp_path: Path) -> None:
    one, other = saved(tmp_path), saved(tmp_path, partitions=20)
    content = json.loads(other.read_text())
    content["machine"]["cores"] = 99
    other.write_text(json.dumps(content))
    assert [*swept(one, other)] == []


def test_a_result_of_an_older_benchmark_is_drawn_without_its_command(tmp_path: Path) -> None:
    file = saved(tmp_path)
    content = json.loads(file.read_text())
    for name in ("command", "measured", "described", "notes"):
        del content[name]
    file.write_text(json.dumps(content))
    (said,) = picture(file).get_supxlabel().splitlines()
    assert said.startswith("2 rounds")
    assert run(file, "-o", tmp_path).returncode == 0


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHES / "run.py"), "report", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def test_the_command_draws_and_prints_results_and_refuses_other_files(tmp_path: Path) -> None:
    record = saved(tmp_path)
    drawn = tmp_path / f"{record.stem}.svg"
    done = run(record, "-o", tmp_path)
    assert done.returncode == 0, done.stderr
    for part in (
        f"picture: {drawn}",
        "Of <warm> batches.",
        "An aggregation.\nTwo batches.",
        "missed",
        "2,000..2,001",
        "1.000 (1.000..1.000)",
    ):
        assert part in done.stdout
    assert "commitTimeMs" not in done.stdout
    before = drawn.read_text()
    assert "<svg " in before
    assert "objects per batch</text>" in before
    assert run(record, "-o", tmp_path).returncode == 0
    assert drawn.read_text() == before
    other = tmp_path / "other.json"
    other.write_text("[]")
    done = run(record, other, "-o", tmp_path)
    assert (done.returncode, drawn.read_text()) == (2, before)
    assert f"{other} is no result of benches/run.py" in done.stderr
    done = run(record, "-o", tmp_path / "gone")
    assert done.returncode == 2
    assert "No such file or directory" in done.stderr


def test_a_run_ends_with_pictures_of_what_it_measured(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import run as benches
    from common.report import Result
    from common.rounds import Metric, Run, WrongStateError

    def measured(options: object, folder: Path, screen: object) -> Any:
        some = Run(provider="holdfast", round_number=0, load=0.0, values={"batch_ms": [7.0]})
        metric = Metric(name="batch_ms", title="batch time, ms")
        yield (
            "Some batches.",
            Result(name="some", plan={}, metrics=[metric], targets=(), runs=[some], notes=""),
        )
        raise WrongStateError("a run lost keys")

    monkeypatch.setattr(benches, "results", measured)
    monkeypatch.setattr(benches, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "coordinator", "--rounds", "1"])
    assert benches.main() == 1
    (drawn,) = tmp_path.glob("some-*.svg")
    (record,) = tmp_path.glob("some-*.json")
    content = json.loads(record.read_text())
    assert content["command"] == "benches/run.py coordinator --rounds 1"
    assert content["described"] == "Some batches."
    assert "batch time, ms</text>" in drawn.read_text()


def test_results_of_a_short_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    import run as benches

    monkeypatch.setattr(benches, "RESULTS", tmp_path)
    monkeypatch.setattr(sys, "argv", ["run.py", "state", "--quick", "--state-mib", "64"])
    assert benches.main() == 0
    said = capsys.readouterr().out
    records = sorted(tmp_path.glob("*.json"))
    assert records
    for record in records:
        made = picture(record)
        assert "benches/run.py state --quick --state-mib 64" in made.get_supxlabel()
        assert f"Picture: {record.with_suffix('.svg')}" in said
    (restore,) = [row for row in said.splitlines() if row.startswith("restore, ms")]
    assert "Holdfast" in restore
