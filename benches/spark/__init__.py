"""Benchmarks of whole streaming queries on real Spark."""
