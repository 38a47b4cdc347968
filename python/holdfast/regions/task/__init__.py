"""Code of workers: the task, its threads, a region in an attempt, instances of operators."""
