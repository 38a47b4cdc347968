"""`make test` tries the same examples everywhere, and `make test-full` other ones each time."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

TEST = """
import os
from hypothesis import given, strategies as st

if os.environ["OTHER"]:
    import other

@given(st.lists(st.integers()), st.text())
def test_examples(numbers, text):
    with open("drawn", "a") as drawn:
        print(numbers, ascii(text), file=drawn)
"""


def drawn(folder: Path, *options: str, other: str = "", hash_seed: str = "0") -> str:
    """Returns what a test draws in a process of its own, with the settings of tests/conftest.py."""
    (folder / "drawn").unlink(missing_ok=True)
    (folder / "test_examples.py").write_text(TEST)
    (folder / "other.py").write_text("NUMBERS = " + str([*range(1_000_000, 1_000_900)]))
    env = {name: value for name, value in os.environ.items() if name != "CI"}
    env |= {"PYTHONPATH": str(ROOT / "tests"), "PYTHONHASHSEED": hash_seed, "OTHER": other}
    command = [sys.executable, "-m", "pytest", "-p", "conftest", "--rootdir=.", *options]
    done = subprocess.run(
        [*command, "test_examples.py"], cwd=folder, env=env, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return (folder / "drawn").read_text()


def test_examples_are_the_same_in_each_run_and_others_in_the_full_one(tmp_path: Path) -> None:
    usual = drawn(tmp_path)
    assert usual.count("\n") >= 100
    assert drawn(tmp_path, other="loaded", hash_seed="1") == usual
    full = [drawn(tmp_path, "--hypothesis-profile=fresh") for _ in range(2)]
    assert len({usual, *full}) == 3


def commands(*arguments: str) -> str:
    """Returns the commands that `make` would run."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("MAKE")}
    made = subprocess.run(
        ["make", "--dry-run", *arguments], cwd=ROOT, env=env, capture_output=True, text=True
    )
    assert made.returncode == 0, made.stderr
    return made.stdout


def test_a_usual_run_has_one_seed_and_a_full_one_a_new_one_for_all_that_draws() -> None:
    assert "PROPTEST_RNG_SEED=0 cargo test" in commands("test", "SEED=4711")
    for target, variables in {
        "test-full": ("PROPTEST_RNG_SEED", "HOLDFAST_SEED", "--hypothesis-seed"),
        "fuzz": ("HOLDFAST_FUZZ_FIRST", "PROPTEST_RNG_SEED", "HOLDFAST_SIM_FIRST"),
    }.items():
        made = commands(target, "SEED=4711")
        for variable in variables:
            assert f"{variable}=4711" in made
