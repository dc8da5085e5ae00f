"""Chaos of budgets: many callers at once, limits that are changed under them, and an account of every unit."""
