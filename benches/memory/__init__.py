"""Native memory of a JVM over many batches."""
