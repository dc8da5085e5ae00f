"""Chaos for messaging media: what distributions push, and the notifications they receive."""
