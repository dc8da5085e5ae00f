"""Chaos of the console: people who sign in once by each link, act by forms, and are signed out for good."""
