"""Charges for storage and their reports."""
