"""What must work to the letter."""
