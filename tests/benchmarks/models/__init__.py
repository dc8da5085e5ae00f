"""Benchmarks of model calls."""
