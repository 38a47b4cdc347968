"""State of operators: declared, saved to segments and brought back, on the host or a GPU."""
