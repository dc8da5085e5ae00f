"""Chaos for budgets: many concurrent callers, limits that change under them, and an exact account of every unit."""
