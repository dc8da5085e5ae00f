"""The metadata documents of the authorization server (RFC 8414) and the protected resource (RFC 9728)."""

from typing import Any

from shared.identity.access.permissions import TOKEN_PERMISSIONS

CLIENT_CREDENTIALS = "client_credentials"
TOKEN_EXCHANGE = "urn:ietf:params:oauth:grant-type:token-exchange"  # noqa: S105 (the name of a grant)
_CLIENT_AUTHENTICATION = ["client_secret_basic", "client_secret_post"]


def authorization_server_metadata(base_url: str) -> dict[str, Any]:
    """Return the document of `/.well-known/oauth-authorization-server` (RFC 8414)."""
    return {
        "issuer": base_url,
        "token_endpoint": f"{base_url}/oauth/token",
        # Include `none` for workflows, which authenticate by the token that they exchange.
        "token_endpoint_auth_methods_supported": [*_CLIENT_AUTHENTICATION, "none"],
        "revocation_endpoint": f"{base_url}/oauth/revoke",
        "revocation_endpoint_auth_methods_supported": _CLIENT_AUTHENTICATION,
        "introspection_endpoint": f"{base_url}/oauth/introspect",
        "introspection_endpoint_auth_methods_supported": _CLIENT_AUTHENTICATION,
        "jwks_uri": f"{base_url}/.well-known/jwks.json",
        "grant_types_supported": [CLIENT_CREDENTIALS, TOKEN_EXCHANGE],
        "response_types_supported": [],
        "scopes_supported": sorted(TOKEN_PERMISSIONS),
    }


def protected_resource_metadata(base_url: str) -> dict[str, Any]:
    """Return the document of `/.well-known/oauth-protected-resource` (RFC 9728)."""
    return {
        "resource": base_url,
        "authorization_servers": [base_url],
        "bearer_methods_supported": ["header"],
        "scopes_supported": sorted(TOKEN_PERMISSIONS),
    }
