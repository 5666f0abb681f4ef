"""Routing of messages to agents, and hand-offs between agents."""
