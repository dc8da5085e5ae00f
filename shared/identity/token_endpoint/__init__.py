"""The token endpoint of OAuth 2.0: exchange of secrets and workflow tokens, minting of attributions, metadata."""
