"""What was seen of requests, servers, workers and machines, as it was seen: no figure is made
here."""
