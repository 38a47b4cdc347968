"""Python workers of real executors share the manager of their executor, and reach the driver while
their job runs. One job does it all; each test looks at a part of what happened.
"""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from support import environment, program

JOB = program("spark/socket_job.py")

# Two executors, six jobs, a killed worker and a killed executor: for when the machine is busy.
pytestmark = pytest.mark.timeout(600)

# What the parts of the job found, by name.
Facts = dict[str, Any]


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory) -> Facts:
    folder = tmp_path_factory.mktemp("socket")
    log = folder / "log.txt"
    # No argument of the JVMs says where their temporary files are.
    temporary = folder / "temporary"
    temporary.mkdir()
    options = {"JAVA_TOOL_OPTIONS": f"-Djava.io.tmpdir={temporary}"}
    with log.open("wb") as output:
        done = subprocess.run(
            [sys.executable, JOB, str(folder)],
            cwd=folder,
            env=environment(options),
            stdout=output,
            stderr=output,
            timeout=500,
            check=False,
        )
    assert done.returncode == 0, log.read_text(errors="replace")[-6000:]
    found: Facts = json.loads((folder / "facts.json").read_text())
    return found


def test_a_segment_survives_the_kill_of_its_neighbours_worker(facts: Facts) -> None:
    killed = facts["killed_worker"]
    assert killed["again"]["region"] == killed["victim"]["region"]
    assert killed["again"]["pid"] != killed["victim"]["pid"]
    assert killed["results"] == ["True", "True"]
    assert killed["intact"] == [True, True, True]


def test_every_executor_has_one_file(facts: Facts) -> None:
    killed = facts["killed_worker"]
    assert len(killed["sockets"]) == 2
    assert len(killed["referenced_files"]) == 2
    assert killed["files"] == killed["referenced_files"]


def test_the_driver_knows_every_manager_by_its_term(facts: Facts) -> None:
    killed = facts["killed_worker"]
    assert len(killed["terms"]) == 2
    assert killed["terms"] == killed["ref_terms"]


def test_sockets_have_no_file_that_a_cleaner_could_remove(facts: Facts) -> None:
    assert all(socket.startswith("@holdfast-") for socket in facts["killed_worker"]["sockets"])


def test_executors_stage_what_the_driver_publishes(facts: Facts) -> None:
    staged = facts["staged"]
    assert staged["refused"] == ["FileNotFoundError", "FileExistsError"]
    assert staged["before"] == ["a", "staged"]
    assert staged["after"] == ["rows", "staged"]
    assert staged["rows"] == "rows of a region"


def test_messages_of_the_driver_delete_files(facts: Facts) -> None:
    life = facts["life_of_files"]
    assert (life["told"], life["told_again"]) == (2, 2)
    assert len(life["kept"]) == 2  # and then they went, or the job would not have ended


def test_a_message_that_no_manager_understands_counts_for_none(facts: Facts) -> None:
    life = facts["life_of_files"]
    assert (life["told_nonsense"], life["told_elsewhere"]) == (0, 0)


def test_a_folder_is_used_by_one_open_pipeline_and_by_no_state_store(facts: Facts) -> None:
    again = facts["closed_and_opened_again"]
    assert "IllegalStateException" in again["open_twice"]
    assert "IllegalStateException" in again["folder_twice"]
    assert "belongs to state stores" in again["state_folder"]


def test_a_closed_pipeline_is_sealed_and_refuses_both_sides(facts: Facts) -> None:
    again = facts["closed_and_opened_again"]
    assert again["readable"]
    # A sealed file has a footer.
    assert again["sealed_bytes"] > again["open_bytes"]
    assert again["terms_closed"] == []
    assert "'sales' is not open" in again["poll_closed"]
    (said,) = again["worker_closed"]
    assert said.startswith("FencedError: ")
    assert "'sales' is not open" in said


def test_whoever_waits_for_messages_can_be_woken(facts: Facts) -> None:
    assert facts["closed_and_opened_again"]["woken"]


def test_a_worker_with_another_folder_is_told_the_right_one(facts: Facts) -> None:
    (said,) = facts["closed_and_opened_again"]["worker_elsewhere"]
    assert said.startswith("FencedError: ")
    assert said.endswith("/segments, not in /elsewhere")


def test_a_pipeline_that_is_opened_again_begins_with_new_managers(facts: Facts) -> None:
    # Checkpoint 1 again: the managers of the first time would say that it was decided.
    again = facts["closed_and_opened_again"]
    assert again["results_again"] == ["True", "True"]
    assert len(again["terms_again"]) == 2
    assert not set(again["terms_again"]) & set(facts["killed_worker"]["terms"])


def test_messages_beyond_the_drivers_room_wait_and_none_is_lost(facts: Facts) -> None:
    flooded = facts["flooded"]
    assert flooded["waited"] == ["True"]
    assert flooded["lengths"] == [15 << 20] * 4 + [16] + [15 << 20]
    assert flooded["first_bytes"] == [0, 1, 2, 3, ord("a"), 4]
    assert flooded["nothing"] is None


def test_small_messages_that_wait_are_handed_to_the_driver_at_once(facts: Facts) -> None:
    flooded = facts["flooded"]
    assert flooded["alone"]
    assert flooded["together"] == ["00", "01", "02"]


def test_the_terms_of_a_lost_executor_are_not_live(facts: Facts) -> None:
    lost = facts["lost_executor"]
    assert lost["gone"] in lost["before"]
    assert lost["region"][0] == lost["region"][1]
    assert lost["results"] == ["True", "True"]
