"""Parts that all benchmarks share: rounds, figures, targets and the report."""
