"""The hot path: HTTP/1.1 requests, answers as events, and the kernel's receive timestamps.

This package does not know tokens. A caller passes a `Request` and a reader to `Transport.send` and
gets an `Exchange` with timestamps, status and, if the request failed, the failure. What waits is
gevent's, the rest needs no engine (docs/decisions/022-a-second-engine.md).
"""
