"""Plans of several runs: how much this machine carries."""
