"""Find the flags with which a server carries the most: a race of settings, stage by stage."""
