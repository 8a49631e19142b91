"""Locust user classes. They know a `Session`, never the swarm behind it."""
