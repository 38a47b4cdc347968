"""Parts that examples and benchmarks share: processes, sessions, figures, checks, the screen."""
