"""What reports say of many runs, by SHA-256: a change that is meant to change nothing changes no
output."""
