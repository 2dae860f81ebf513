"""The program behind `tools/check-model`."""
