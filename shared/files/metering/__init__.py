"""Measure stored bytes, for billing."""
