"""Checkpoints of ordinary queries: Spark's logs, state, and pending rows of parked partitions."""
