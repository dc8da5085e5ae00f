"""Identity: callers, permissions, tokens, credentials and the resources of organizations; see README.md."""
