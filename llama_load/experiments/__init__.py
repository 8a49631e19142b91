"""Experiments of several runs: how much load this machine carries."""
