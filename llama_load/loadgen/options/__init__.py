"""The flags, and their values as typed objects."""
