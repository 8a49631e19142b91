"""The servers: a C program for plain answers, a Python one for all others."""
