"""The benchmark of array states, with NumPy."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

np = pytest.importorskip("numpy")
pytest.importorskip("rich")

BENCHES = Path(__file__).parents[2] / "benches"
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _benches_on_path(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(BENCHES), *sys.path])


def test_every_saver_is_measured(tmp_path: Path) -> None:
    from gpu.state import HOST_TARGETS, METRICS, Plan

    from harness.screen import Screen

    plan = Plan(folder=tmp_path, rounds=1, module="numpy", state_bytes=24 * MIB)
    result = plan.measure(Screen())
    values = {(run.provider, run.round_number): run.values for run in result.runs}
    assert set(values["holdfast", 0]) == {metric.name for metric in METRICS}
    assert all(len(found) > 0 for found in values["holdfast", 0].values())
    for saver in ("plain file", "numpy.save"):
        assert len(values[saver, 0]["durable_ms"]) == 1
    assert len(result.verdicts()) == len(HOST_TARGETS)
    assert list(tmp_path.iterdir()) == []


def test_a_saver_that_restores_something_else_ends_the_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from common.rounds import WrongStateError
    from gpu.beside import ArraySaver, measured

    def save_something_else(file: Any, array: Any) -> None:
        np.lib.format.write_array(file, array + np.uint8(1))

    monkeypatch.setattr(np, "save", save_something_else)
    array = np.zeros(1000, np.uint8)
    with pytest.raises(WrongStateError, match=r"numpy\.save restored another array"):
        measured(ArraySaver(np), array, tmp_path / "beside")
    assert list(tmp_path.iterdir()) == []
