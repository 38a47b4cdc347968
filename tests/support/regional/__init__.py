"""What tests of regional pipelines share, with Spark and without."""
