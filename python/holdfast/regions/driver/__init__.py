"""The driver's side: carries out the decisions of the checkpoint coordinator."""
