"""The driver's side of checkpoints: carries out the decisions of the checkpoint coordinator."""
