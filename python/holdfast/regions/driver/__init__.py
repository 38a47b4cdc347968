"""The driver's side of checkpoints."""
