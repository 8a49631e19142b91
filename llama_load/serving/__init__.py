"""Start, watch and stop servers: the embedded llama-server for the demo and the tests, the simulated one for timing."""
