"""Where prompts come from. Knows nothing of the wire: token counting is handed in."""
