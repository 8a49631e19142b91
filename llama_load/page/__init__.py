"""Our pages in Locust's web UI."""
