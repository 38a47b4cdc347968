"""The base of regional pipelines: errors, clocks, turns, splitting."""
