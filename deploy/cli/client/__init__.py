"""The service as commands reach it: saved logins, and the SDK's client."""
