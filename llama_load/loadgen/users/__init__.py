"""Locust user classes. They know a `Session`, not the swarm behind it."""
