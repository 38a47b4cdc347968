"""The cost of isolation while nothing fails."""
