"""Kinds of state: each is a class that restores a state and takes it for each checkpoint."""
