"""Which of several set-ups is better: sides of repeated runs, their differences, reasons not to
rank them. Pure data."""
