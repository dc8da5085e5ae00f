"""Chaos of files: uploads, replaces, deletes, renewals, grants and reads."""
