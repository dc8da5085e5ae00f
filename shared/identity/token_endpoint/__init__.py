"""The token endpoint of OAuth 2.0: exchange secrets and workflow tokens, mint attributions, and describe the server."""
