"""What the numbers mean: one function a metric, the summary of a run, and its verdict. Knows no network and no Locust."""
