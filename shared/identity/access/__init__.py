"""Authorization: callers, permissions, roles."""
