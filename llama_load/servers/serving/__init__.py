"""Starts and stops servers: the embedded llama-server for the demo and tests, the simulated one for
timing."""
