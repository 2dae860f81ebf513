"""The command line `cassq`: a door. It asks the library, prints what it says, and decides nothing."""
