"""The words of results and goals: names of figures, objectives, thresholds, precision, verdicts."""
