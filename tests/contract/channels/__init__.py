"""The channel contract, for every channel."""
