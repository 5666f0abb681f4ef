"""Which agent gets a message, and how agents hand messages on."""
