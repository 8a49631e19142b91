"""One run, in one process or on the master: its controller and phases; on a worker's side its sender and lease client."""
