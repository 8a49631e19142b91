"""What everything stands on: errors, exit codes, units, languages, and what a process does as it
starts."""
