"""Tables as states, with times to live and timers: rows in the core's state store."""
