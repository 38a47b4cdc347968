from __future__ import annotations

import os
from pathlib import Path

import pytest

from harness.process import (
    ChildError,
    SparkChild,
    cpu_of,
    cpu_of_session,
    running_in_session,
)

REPORT = "import os, sys, json; w = os.fdopen(int(sys.argv[-1]), 'w', buffering=1);"


def child(code: str, tmp_path: Path) -> SparkChild:
    return SparkChild(["-c", REPORT + code], spec={}, log=tmp_path / "log")


def test_killing_a_child_ends_its_own_children_too(tmp_path: Path) -> None:
    code = (
        "import subprocess; subprocess.Popen(['sleep', '600']);"
        "w.write(json.dumps({'event': 'started'}) + '\\n'); import time; time.sleep(600)"
    )
    with child(code, tmp_path) as running:
        assert next(running.events(silence_s=60)) == ("started", {})
        assert len(running_in_session(running.session)) == 2
        running.kill()
        assert running_in_session(running.session) == []


def test_a_child_that_left_the_process_group_is_killed_too(tmp_path: Path) -> None:
    # As the daemon does that starts PySpark's workers.
    leave = "import os, time; os.setpgid(0, 0); print('left', flush=True); time.sleep(600)"
    code = (
        f"import subprocess; p = subprocess.Popen([sys.executable, '-c', {leave!r}],"
        " stdout=subprocess.PIPE); p.stdout.readline();"
        "w.write(json.dumps({'event': 'started'}) + '\\n'); import time; time.sleep(600)"
    )
    with child(code, tmp_path) as running:
        assert next(running.events(silence_s=60)) == ("started", {})
        left = running_in_session(running.session)
        assert len({os.getpgid(process) for process in left}) == 2
        running.kill()
        assert running_in_session(running.session) == []


def test_the_cpu_time_of_a_session_includes_children_that_ended(tmp_path: Path) -> None:
    burn = "import time\nwhile time.process_time() < 0.2: pass"
    code = (
        f"import subprocess, time; subprocess.run([sys.executable, '-c', {burn!r}]);"
        "w.write(json.dumps({'event': 'started', 'own': time.process_time()}) + '\\n');"
        "time.sleep(600)"
    )
    with child(code, tmp_path) as running:
        _, fields = next(running.events(silence_s=60))
        # Ticks are coarser than the clock the processes read.
        assert cpu_of_session(running.session) >= 0.2 + fields["own"] - 0.05


def test_cpu_time_is_read_again_when_a_process_ended_meanwhile() -> None:
    def ticks(*own_and_children: int) -> list[str]:
        return [*"S123456789A", *map(str, own_and_children)]

    second = os.sysconf("SC_CLK_TCK")
    # The child ends after its parent was read: the first reading has its time nowhere.
    readings = [
        {1: ticks(second, 0, 0, 0)},
        {1: ticks(second, 0, 5 * second, second), 2: ticks(second, second, 0, 0)},
        {1: ticks(second, 0, 7 * second, second)},
        {1: ticks(second, 0, 7 * second, second)},
    ]
    assert cpu_of(iter(readings).__next__) == 9


def test_a_child_that_dies_early_is_an_error_with_its_log(tmp_path: Path) -> None:
    code = "print('why it died', flush=True); sys.exit(3)"
    with (
        child(code, tmp_path) as running,
        pytest.raises(ChildError, match=r"status 3(?s:.*)why it died"),
    ):
        list(running.events(silence_s=60))
