"""Agent cards of remote agents: found, parsed, stored and refreshed."""
