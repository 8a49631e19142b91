"""Everything that touches Locust's events: options, the life of a run, leases, the recorder, the progress display."""
