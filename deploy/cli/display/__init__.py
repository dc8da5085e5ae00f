"""Print the output of commands: tables, JSON, progress bars and streamed replies."""
