"""Chaos for models: calls of every kind, and the reconciliation of all accounts."""
