"""The SDK beside the service; the distribution itself is what lies in `src`."""
