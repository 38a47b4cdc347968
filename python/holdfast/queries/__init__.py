"""Checkpoints of ordinary queries: Spark's logs, state, and what waits in parked partitions."""
