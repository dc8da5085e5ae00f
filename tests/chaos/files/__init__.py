"""Chaos for files: uploads, replaces, deletes, renewals, grants and reads."""
