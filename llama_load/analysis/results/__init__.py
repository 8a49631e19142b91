"""From a run folder to its results: figures of the run and of its parts, verdict, thresholds. The
input of all reports."""
