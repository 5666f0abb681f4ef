"""Hosts as network namespaces of one machine, cut off from their database and healed again."""
