"""``benches/run.py report``: a page made of result files."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ET
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("rich")

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


def made(*files: Path) -> ET.Element:
    from common.compare import read
    from common.page import report_page

    text = report_page([read(file) for file in files])
    body = text[text.index("<body>") : text.index("</body>") + len("</body>")]
    return ET.fromstring(body.replace("<br>", "<br/>"))  # noqa: S314 - made by the code under test


def said(page: ET.Element) -> str:
    return " ".join("".join(page.itertext()).split())


def figures(page: ET.Element) -> dict[str, tuple[ET.Element, str]]:
    """The pictures by what they show, with what is said below them."""
    found = {}
    for figure in page.iter("figure"):
        (picture,), (caption,) = figure.iter("svg"), figure.iter("figcaption")
        found[picture.attrib["aria-label"].partition(":")[0]] = (picture, said(caption))
    return found


def dots(picture: ET.Element) -> int:
    return sum("dot" in one.attrib["class"].split() for one in picture.iter("circle"))


def test_every_figure_of_every_round_is_drawn_with_where_it_comes_from(tmp_path: Path) -> None:
    page = made(saved(tmp_path))
    found = figures(page)
    assert [*found] == ["batch time, ms", "objects per batch"]
    for picture, caption in found.values():
        assert dots(picture) == len(PROVIDERS) * 2 * 2
        for part in ("2 rounds", "Spark 4.3.0", "benches/run.py many --rounds 2", "load 0.5", "Z"):
            assert part in caption
    assert "Holdfast 2,000 (2,000..2,001)" in found["batch time, ms"][0].attrib["aria-label"]
    text = said(page)
    for part in ("Of <warm> batches.", "An aggregation.", "Two batches.", "missed"):
        assert part in text


def test_what_was_not_measured_is_not_drawn(tmp_path: Path) -> None:
    page = made(saved(tmp_path, metrics=("batch_ms", "commit_ms")))
    assert [*figures(page)] == ["batch time, ms"]
    assert "commitTimeMs" not in said(page)


def test_results_that_differ_in_one_quantity_make_lines_over_it(tmp_path: Path) -> None:
    page = made(*(saved(tmp_path, partitions=count) for count in (800, 20, 200)))
    found = figures(page)
    assert "By partitions" in said(page)
    picture, caption = found["batch time, ms by partitions"]
    label = picture.attrib["aria-label"]
    assert "Holdfast 200 at 20, 2,000 at 200, 8,000 at 800" in label
    assert dots(picture) == 3 * len(PROVIDERS) * 2 * 2
    assert "2 rounds" in caption
    # No two lines have the same marks and dashes.
    lines = [one.attrib["style"] for one in picture.iter("path") if "style" in one.attrib]
    assert len({line.partition("dasharray")[2] for line in lines}) == len(PROVIDERS)


@pytest.mark.parametrize("other", [{"rounds": 3}, {"rows": 5}])
def test_results_that_differ_in_more_make_none(tmp_path: Path, other: Mapping[str, Any]) -> None:
    page = made(saved(tmp_path), saved(tmp_path, partitions=20, **other))
    assert "By partitions" not in said(page)
    assert len([*page.iter("figure")]) == 4


def test_results_of_two_machines_make_no_line(tmp_path: Path) -> None:
    one, other = saved(tmp_path), saved(tmp_path, partitions=20)
    content = json.loads(other.read_text())
    content["machine"]["cores"] = 99
    other.write_text(json.dumps(content))
    assert "By partitions" not in said(made(one, other))


def test_a_result_of_an_older_benchmark_is_drawn_without_its_command(tmp_path: Path) -> None:
    file = saved(tmp_path)
    content = json.loads(file.read_text())
    for name in ("command", "measured", "described", "notes"):
        del content[name]
    file.write_text(json.dumps(content))
    (_, caption), *_ = figures(made(file)).values()
    assert caption.startswith("2 rounds")


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(BENCHES / "run.py"), "report", *map(str, arguments)],
        capture_output=True,
        text=True,
    )


def test_the_command_writes_the_page_and_refuses_other_files(tmp_path: Path) -> None:
    record, page = saved(tmp_path), tmp_path / "report.html"
    done = run(record, "-o", page)
    assert done.returncode == 0, done.stderr
    assert f"{page} has the page" in done.stdout
    before = page.read_text()
    assert before.startswith("<!doctype html>")
    assert run(record, "-o", page).returncode == 0
    assert page.read_text() == before
    other = tmp_path / "other.json"
    other.write_text("[]")
    done = run(other, "-o", page)
    assert (done.returncode, page.read_text()) == (2, before)
    assert f"{other} is no result of benches/run.py" in done.stderr
    done = run(record, "-o", tmp_path / "gone" / "report.html")
    assert done.returncode == 2
    assert "No such file or directory" in done.stderr


def test_a_run_ends_with_a_page_of_what_it_measured(
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
    (page,) = tmp_path.glob("report-*.html")
    (record,) = tmp_path.glob("some-*.json")
    assert json.loads(record.read_text())["command"] == "benches/run.py coordinator --rounds 1"
    assert "Some batches." in page.read_text()
