"""What the commands of tools/bench are made of: one module for each, and none of it is part of cassq."""
