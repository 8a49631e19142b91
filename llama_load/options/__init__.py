"""What was asked: the flags, and their reading into values."""
