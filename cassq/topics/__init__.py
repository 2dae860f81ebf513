"""Topics: logs that are published to, read by offset, and consumed by groups."""
