"""Administer messaging networks: settings, accounts, app installations."""
