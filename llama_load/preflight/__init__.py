"""Does it fit? What is asked and planned before the first request."""
