"""Identity: callers, permissions, tokens, credentials and the resources of organizations. See README.md."""
