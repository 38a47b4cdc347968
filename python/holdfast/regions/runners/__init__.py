"""Runners of tasks: threads of this process, or Spark."""
