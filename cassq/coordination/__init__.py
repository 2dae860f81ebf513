"""Who may take from which pipe: the port, and one adapter for each coordination service."""
