"""From a run folder to its results: figures of the run and of its parts, verdict, thresholds. What reports are made of."""
