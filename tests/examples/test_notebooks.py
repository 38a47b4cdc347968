"""The notebooks run from the first cell to the last, and show what their text says."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import pytest

from support import TESTS
from support.notebooks import MissingPackagesError, packages, run_notebook

NOTEBOOKS = TESTS.parent / "examples" / "notebooks"

pytest.importorskip("pyspark")


@pytest.fixture(autouse=True, scope="module")
def _packages() -> None:
    try:
        packages()
    except MissingPackagesError as missing:
        pytest.skip(str(missing))


def shown(cells: list[dict[str, Any]], kind: str = "text/plain") -> list[str]:
    """What the last expressions of cells show in one form, in order."""
    return [
        "".join(output["data"][kind])
        for cell in cells
        for output in cell.get("outputs", ())
        if output["output_type"] == "execute_result" and kind in output["data"]
    ]


def printed(cells: list[dict[str, Any]]) -> str:
    """What cells print."""
    return "".join(
        "".join(output["text"])
        for cell in cells
        for output in cell.get("outputs", ())
        if output["output_type"] == "stream"
    )


def rows(table: str) -> list[list[str]]:
    """The cells of a table of HTML, heads left out."""
    lines = re.findall(r"<tr.*?</tr>", table, re.DOTALL)
    found = [re.findall(r"<td[^>]*>(.*?)</td>", line, re.DOTALL) for line in lines]
    return [[re.sub(r"<.*?>", "", cell) for cell in line] for line in found if line]


@pytest.mark.spark
@pytest.mark.full
def test_the_state_of_a_query(tmp_path: Path) -> None:
    cells = run_notebook(NOTEBOOKS / "state-store.ipynb", tmp_path)
    counts, before, *_ = shown(cells, "text/html")
    assert ["the", "5"] in rows_of_words(counts)
    assert ["the", "2"] in rows_of_words(before)
    _, files, _, metrics = shown(cells)
    assert len(ast.literal_eval(files)) == 1
    assert ast.literal_eval(metrics)
    assert "stores of batch 2" in printed(cells)


def rows_of_words(table: str) -> list[list[str]]:
    return [line[-2:] for line in rows(table)]


@pytest.mark.spark
@pytest.mark.full
def test_a_region_that_fails_and_catches_up(tmp_path: Path) -> None:
    cells = run_notebook(NOTEBOOKS / "regional-pipeline.ipynb", tmp_path)
    first, failing, last, *_ = shown(cells, "text/html")
    assert [line[2] for line in rows(first)] == ["global"] * 3
    assert [line[2] for line in rows(failing)][-1] == "regional"
    assert "no line to Riga" in failing
    assert rows(last)[-1][2] == "global"
    _, before, _, during, _, after = shown(cells)
    healthy, failed = ast.literal_eval(before), ast.literal_eval(during)
    assert failed["riga"] == healthy["riga"]
    assert all(failed[site] > healthy[site] for site in ("bern", "oslo", "rome"))
    counts, total = ast.literal_eval(after)
    assert (total, counts["riga"] > failed["riga"]) == (4_000, True)
    assert "ConnectionError: no line to Riga" in printed(cells)


def test_notebooks_are_kept_without_what_they_put_out() -> None:
    found = sorted(NOTEBOOKS.glob("*.ipynb"))
    assert len(found) == 2
    for notebook in found:
        for cell in json.loads(notebook.read_text())["cells"]:
            assert cell.get("outputs", []) == []
            assert cell.get("execution_count") is None
