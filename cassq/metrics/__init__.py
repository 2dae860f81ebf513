"""What cassq tells systems that collect metrics."""
