"""What is said of a Spark job that failed."""

from __future__ import annotations

import pytest

from holdfast.regions.runners.spark.runner import _reason

LOST = (
    "org.apache.spark.SparkException: Job aborted due to stage failure: Task 1 in stage 3.0 failed "
    "4 times, most recent failure: Lost task 1.3 in stage 3.0 (TID 9) (host executor 0): "
)
WORKER = """org.apache.spark.api.python.PythonException: Traceback (most recent call last):
  File "/spark/worker.py", line 1999, in main
    func = read_command(pickleSer, infile)
           ^^^^^^^^^^^^
ModuleNotFoundError: No module named 'our_operators'

\tat org.apache.spark.api.python.BasePythonRunner$ReaderIterator.handlePythonException
Driver stacktrace:
"""


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            LOST + WORKER,
            LOST
            + "org.apache.spark.api.python.PythonException: "
            + "ModuleNotFoundError: No module named 'our_operators'",
        ),
        ("\norg.apache.SomeException: gone\n\tat here", "org.apache.SomeException: gone"),
        ("", "ValueError"),
    ],
)
def test_the_reason_ends_with_what_the_worker_raised(text: str, said: str) -> None:
    assert _reason(ValueError(text)) == said
