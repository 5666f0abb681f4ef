"""What agents remember: observations, and the index in which they are found again."""
