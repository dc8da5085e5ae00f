"""Chaos for agents: clients send messages under an idempotency key and follow the tasks."""
