"""What the benchmarks have in common: rounds, figures, targets and the report."""
