"""The benchmark of many executors: it runs, and its store counts the requests that S3A sends."""

from __future__ import annotations

import os
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from harness.process import follow
from support.spark.object_stores import S3Server

pytestmark = pytest.mark.timeout(600)

BENCHES = Path(__file__).parents[3] / "benches"
EXECUTORS = 4

#: Kinds of requests on the server, and in the simulation.
KINDS = {
    "PutObject": "put",
    "ListObjectsV2": "list",
    "GetObject": "get",
    "HeadObject": "head",
    "DeleteObject": "delete",
    "DeleteObjects": "bulk_delete",
}


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    monkeypatch.setattr(sys, "path", [str(BENCHES), *sys.path])
    from scale.measure import Plan

    return Plan(folder=tmp_path, executors=EXECUTORS, retained=6, driver_memory="1g")


@pytest.fixture
def classes(plan: Any) -> Path:
    return plan.compiled()


def run(spec: dict[str, Any], log: Path) -> list[tuple[str, dict[str, Any]]]:
    """Return the events that the child of the benchmark reports."""
    events: list[tuple[str, dict[str, Any]]] = []
    command = [str(BENCHES / "scale" / "child.py")]
    follow(
        command,
        spec=spec,
        log=log,
        silence_s=300,
        on_event=lambda *event: events.append(event),
    )
    return events


def test_the_figures_of_a_few_executors(plan: Any, classes: Path) -> None:
    from scale.measure import METRICS, figures

    found = figures(plan, run(plan.spec(classes), plan.folder / "log"))
    assert found.keys() == {metric.name for metric in METRICS}
    (requests,) = found["requests"]
    by_kind = {kind: found[kind][0] for kind in KINDS.values()}
    assert sum(by_kind.values()) == pytest.approx(requests)
    # The plan and the commit of a batch are written, and a catalog after some batches. The entries
    # of an old batch are deleted.
    assert 2 <= by_kind["put"] < 3
    assert by_kind["delete"] == 2
    assert found["beside"][0] > 0
    assert found["executor_puts"] == [1] * plan.between
    # A put of the plan, one of all executors at the same time, and one of the commit.
    assert min(found["wait_s"]) >= 0.09
    assert found["heap_mib"][0] > 0
    assert found["restart_requests"][0] > requests


@pytest.mark.full
def test_the_store_counts_as_many_requests_as_s3a_sends(
    plan: Any, classes: Path, s3: S3Server
) -> None:
    store = s3.store("simulated")
    spec = plan.spec(classes)
    # Threads that make folders of partitions at the same time look for a parent more often.
    spec["executors"] = spec["partitions_each"] = 1
    spec["checkpoints"] = ["scale://simulated/checkpoint"] * 2
    simulated: Counter[str] = Counter()
    for _, event in run(spec, plan.folder / "log"):
        for on_server, kind in KINDS.items():
            roles = ("driver", "clean_up", "executor")
            simulated[on_server] += sum(event.get(f"{role}_{kind}", 0) for role in roles)
    before = s3.requests()
    spec["checkpoints"] = [store.uri] * 2
    spec["settings"] = spec["settings"] | store.settings
    spec["classes"] = os.pathsep.join(map(str, [classes, *s3.client]))
    run(spec, plan.folder / "s3-log")
    sent = s3.requests()
    sent.subtract(before)
    assert +sent == +simulated
