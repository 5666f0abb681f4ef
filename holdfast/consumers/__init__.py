"""The meaning of a turn in each queue: an agent's work, a delivery, a change of memory."""
