"""The rows of the flags, a file per section of docs/flags.md."""
