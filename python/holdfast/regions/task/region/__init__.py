"""One region in an attempt: its phases, its rows, its output and its answer."""
