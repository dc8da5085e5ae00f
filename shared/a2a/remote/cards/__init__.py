"""Agent cards of remote agents: read, checked, recorded, refreshed, and composed with our own address."""
