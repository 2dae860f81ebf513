"""The benchmarks, one module for each command."""
