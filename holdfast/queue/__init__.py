"""The durable queue: events, leases, turns and their outcomes. It knows nothing of chat."""
