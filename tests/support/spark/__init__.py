"""Parts that tests on Spark share, and programs that they start."""
