"""When requests are sent: stages, schedules, segments. Pure: nothing here sends, waits or knows Locust."""
