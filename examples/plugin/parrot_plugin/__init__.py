"""An example of a package that adds to llama-load: see README.md."""
