"""Data sets: listed, fetched, inspected, made up."""
