"""Errors as HTTP responses, in the format that each path's clients expect."""
