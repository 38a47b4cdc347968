"""Shared parts of tests of regional pipelines, with Spark and without."""
