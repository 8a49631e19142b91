"""Benchmarks. Each prints its figures with a baseline measured in the same run."""
