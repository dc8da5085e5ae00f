"""Charges for storage, and reports of storage and its cost."""
