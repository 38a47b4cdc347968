"""What a user builds a regional pipeline with."""
