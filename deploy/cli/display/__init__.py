"""What commands print: tables, JSON, progress bars, streamed replies."""
