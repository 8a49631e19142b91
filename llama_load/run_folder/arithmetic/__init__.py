"""The arithmetic of one request and of counts, which senders and readers share."""
