"""Benchmarks of regional pipelines."""
