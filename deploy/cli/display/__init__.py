"""Output of commands: tables, JSON, progress bars, streamed replies."""
