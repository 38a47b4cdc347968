"""All regions of a partition in an attempt: their task, their turns, and their durable answers."""
