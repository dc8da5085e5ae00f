"""Background work on content: placement, expiry, garbage collection."""
