"""The SDK against a running service."""
