"""Benchmark of single state stores, below any query."""
