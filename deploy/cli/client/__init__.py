"""Access a service over HTTP: saved logins, and the SDK's client for commands."""
