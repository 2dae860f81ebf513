"""The pure model: pipes, messages and the rules between them. No I/O, no clock, no threads."""
