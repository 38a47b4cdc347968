"""Regional pipelines on Spark."""
