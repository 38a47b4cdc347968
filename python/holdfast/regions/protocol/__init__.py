"""What the driver orders from tasks, and what they answer."""
