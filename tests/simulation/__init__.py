"""A deterministic simulation: the real consumers of many processes over the model of a store."""
