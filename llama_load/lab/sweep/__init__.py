"""Sweeps: a plan of servers, settings, loads and repeats, run cell by cell and reported as one
comparison."""
