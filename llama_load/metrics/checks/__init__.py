"""The checks of a verdict, by what they ask. Each takes `Evidence` and returns checks; their limits are in `metrics.check`."""
