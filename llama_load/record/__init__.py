"""Records what passes between clients and a server, as conversations or a trace without texts."""
