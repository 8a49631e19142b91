"""One run. In one process or on the master: controller and phases. In one process or on a worker:
sender and lease client."""
