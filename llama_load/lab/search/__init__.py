"""Search for the capacity of a server: how many users, or requests per second, it serves within
objectives."""
