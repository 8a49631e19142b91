"""The `llama-load` command: one module a subcommand."""
