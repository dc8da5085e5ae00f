"""The HTTP server: a gunicorn worker class that gathers requests before a thread takes them. No Flask in here."""
