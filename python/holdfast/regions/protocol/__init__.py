"""Orders of the driver to tasks, and their answers."""
