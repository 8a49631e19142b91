"""The checks of a verdict, by topic. Each function takes `Evidence` and returns checks; their
limits are in `analysis.figures.check`."""
