"""Checkpoint folders: who owns one, opening, verifying, copying, going back, rescaling."""
