"""Credentials with a stored secret: API keys, client secrets, webhook secrets; their encryption."""
