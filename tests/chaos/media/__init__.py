"""Chaos of messaging media: what distributions push, and what they are told of it."""
