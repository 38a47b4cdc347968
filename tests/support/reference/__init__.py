"""The tables of docs/reference, made of what the code declares."""
