"""The tables of docs/reference, made of declarations in the code."""
