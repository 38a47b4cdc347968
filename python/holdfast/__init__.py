"""Holdfast: a state backend for Spark Structured Streaming."""
