"""Code of workers: operators and their instances, and in the folders the regions of a task."""
