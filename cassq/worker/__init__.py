"""A worker calls a function for each message of a queue, many at a time, until it is stopped."""
