"""The page of benchmarks and its tables."""
