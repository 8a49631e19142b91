"""`llama-load bench`: speed alone and with several users, at several depths, in one block."""
