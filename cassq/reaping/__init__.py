"""What heals and retires pipes."""
