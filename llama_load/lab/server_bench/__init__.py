"""llama.cpp's own server benchmarks with the same flags and variables: scripts/server-bench.py, and the k6 script of its server."""
