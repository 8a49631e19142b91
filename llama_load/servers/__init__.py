"""The servers' APIs: request bodies, stream events, errors, and what servers report about
themselves."""
