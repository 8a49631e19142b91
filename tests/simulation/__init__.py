"""A swarm in one process: the real master and workers on a virtual event loop, network, disk and
clock, all chosen by a seed."""
