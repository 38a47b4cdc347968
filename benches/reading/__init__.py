"""The reader of state without Spark, and branches, on a checkpoint of 10 M keys."""
