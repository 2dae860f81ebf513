"""Many messages at once: staged writes, snapshots, leased runs."""
