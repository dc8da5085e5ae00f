"""What stored bytes cost: daily charges and their reports."""
