"""A comparison as text for terminals, as Markdown, JSON and HTML."""
