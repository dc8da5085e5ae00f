"""Chaos for remote agents: streams through an agent that is killed too."""
