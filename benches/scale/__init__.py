"""The driver with up to 1,000 simulated executors, on a store that counts its requests."""
