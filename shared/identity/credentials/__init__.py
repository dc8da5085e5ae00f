"""Credentials with a stored secret (API keys, client secrets and webhook secrets), and the reencryption of secrets."""
