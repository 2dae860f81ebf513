"""What is known of the queues of one store."""
