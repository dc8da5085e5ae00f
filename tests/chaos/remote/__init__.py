"""Chaos of agents that run elsewhere: streams through one that is killed too."""
