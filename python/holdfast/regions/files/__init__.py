"""Files and folders of a pipeline: mounted, or reached through the JVM of Spark alone."""
