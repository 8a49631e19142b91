"""Everything that touches foreign bytes or secrets: texts, files, JSON, headers, plain HTTP, the
terminal."""
