"""What each server speaks: request bodies, the meaning of stream events, errors, and what it tells of itself."""
