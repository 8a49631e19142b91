"""When requests are scheduled: stages, schedules, segments. Pure functions: no sending, no waiting,
no Locust."""
