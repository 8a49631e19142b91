"""What drives several runs: sweeps, searches, tuning, calibration, perplexity, tools for data sets.
The core does not know it."""
