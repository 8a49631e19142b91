"""Assigns requests to workers: leases, phases, the dispatcher. Pure: no Locust, no gevent, no
network."""
