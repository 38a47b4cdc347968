"""Paths and files on file systems that are mounted, or that only the JVM of Spark reaches."""
