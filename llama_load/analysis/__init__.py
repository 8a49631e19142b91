"""What reads a run folder. It knows nothing of `loadgen`."""
