"""What regional pipelines ask of Spark."""
