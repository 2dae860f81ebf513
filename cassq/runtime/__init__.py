"""What everything else runs on: time, threads, waiting."""
