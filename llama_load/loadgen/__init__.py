"""What makes a run folder. It knows nothing of `analysis`."""
