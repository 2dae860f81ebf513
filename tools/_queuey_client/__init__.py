"""The program behind `tools/queuey-client`."""
