"""The service beside the library and beside other queues that speak HTTP."""
