"""Chaos for the console: people sign in once with each link, submit forms, and are signed out permanently."""
