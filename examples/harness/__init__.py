"""What examples and benchmarks share: processes, sessions, figures, checks, and the screen."""
