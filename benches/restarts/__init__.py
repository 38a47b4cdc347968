"""Restarts of queries and pipelines whose checkpoints lie elsewhere."""
