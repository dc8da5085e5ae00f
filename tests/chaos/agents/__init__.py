"""Chaos of agents: messages sent under a key, and the tasks that answer them."""
