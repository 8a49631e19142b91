"""When requests are to be sent. Pure functions of a seed and parameters, or of a recorded trace; knows nothing of the wire."""
