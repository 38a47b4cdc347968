"""Where tasks run: threads of this process, or Spark."""
