"""Where messages are kept: the port, and one adapter for each database."""
