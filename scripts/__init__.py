"""Maintenance scripts; not part of the package."""
