"""Budgets, their alerts, and the models that a key may call."""
