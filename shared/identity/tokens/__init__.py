"""Signed tokens: access tokens, usage attributions, signing keys and their rotation."""
