"""Chaos of models: calls in every manner, and everybody's books of them."""
