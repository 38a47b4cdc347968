"""State as tables of Arrow, without Spark and Java."""
