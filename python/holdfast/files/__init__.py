"""Paths that are mounted, or that only the JVM of Spark reaches; what is read from their files."""
