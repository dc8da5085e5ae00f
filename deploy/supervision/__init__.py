"""Start, sandbox, restart and stop child processes."""
