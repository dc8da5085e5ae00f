"""The HTTP server: a gunicorn worker class that reads whole requests before a thread starts on them.

This package does not use Flask.
"""
