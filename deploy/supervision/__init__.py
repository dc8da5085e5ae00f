"""Child processes: start, sandbox, restart and stop them."""
