"""Memory: observations, relay and knowledge index."""
