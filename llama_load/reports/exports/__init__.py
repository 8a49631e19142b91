"""A run in the formats of other programs: a module for each. The verdict goes wherever the format has room for it."""
