"""Resident memory of queries whose state is many times the memory that it may take."""
