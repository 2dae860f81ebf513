"""The popper's half of the protocol."""
