"""The command line: what its commands print, and for whom."""
