"""Who pushes and pops in a benchmark: processes, cassq's and bare drivers'."""
