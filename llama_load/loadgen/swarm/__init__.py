"""How Locust and the network carry a run: in one process, or on a master with workers."""
