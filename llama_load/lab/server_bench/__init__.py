"""llama.cpp's scripts/server-bench.py with the same flags and variables."""
