"""The driver's side: carries out what the checkpoint coordinator decides."""
