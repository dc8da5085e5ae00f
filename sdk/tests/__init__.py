"""The tests of the SDK."""
