"""Arrays as states, in host memory or on a device: which chunks changed since a snapshot."""
