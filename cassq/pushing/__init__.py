"""The pusher's half of the protocol."""
