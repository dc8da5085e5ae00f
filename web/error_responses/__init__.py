"""Errors as HTTP responses, in the format that clients of each path expect."""
