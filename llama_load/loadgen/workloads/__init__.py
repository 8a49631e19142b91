"""The prompts of a run. Knows nothing of the wire: callers pass in the token counter."""
