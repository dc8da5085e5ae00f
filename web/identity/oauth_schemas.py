"""The JSON of the OAuth endpoints, with the member names of the RFCs."""

from collections.abc import Sequence
from typing import Literal

from pydantic import BaseModel, ConfigDict, Field


class Standard(BaseModel):
    """A JSON object with the member names of a standard."""

    # The RFCs use snake_case, so this model is not a CamelModel.
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True)


class TokenBody(Standard):
    """An access token (RFC 6749 5.1)."""

    access_token: str = Field(description="The Version access token, a JWT (RFC 9068).")
    token_type: Literal["Bearer"] = "Bearer"  # noqa: S105 (a type, not a secret)
    expires_in: int = Field(description="Seconds until it expires.")
    scope: str = Field(description="The permissions it carries, separated by spaces.")
    # RFC 8693 requires this member in an exchange, and RFC 6749 does not define it: omit it elsewhere instead
    # of sending null.
    issued_token_type: str | None = Field(
        default=None, exclude_if=lambda at: at is None, description="Of an exchanged token (RFC 8693 2.2.1)."
    )


class IntrospectionBody(Standard):
    """The state of a token (RFC 7662 2.2). An inactive token has only `active`."""

    active: bool
    token_type: Literal["Bearer"] | None = None
    scope: str | None = None
    client_id: str | None = None
    sub: str | None = None
    iss: str | None = None
    aud: str | None = None
    iat: int | None = None
    exp: int | None = None
    jti: str | None = None
    deployment_id: str | None = None
    version_id: str | None = None


class AuthorizationServerBody(Standard):
    """Authorization server metadata (RFC 8414)."""

    issuer: str
    token_endpoint: str
    token_endpoint_auth_methods_supported: Sequence[str]
    revocation_endpoint: str
    revocation_endpoint_auth_methods_supported: Sequence[str]
    introspection_endpoint: str
    introspection_endpoint_auth_methods_supported: Sequence[str]
    jwks_uri: str
    grant_types_supported: Sequence[str]
    response_types_supported: Sequence[str]
    scopes_supported: Sequence[str]


class ProtectedResourceBody(Standard):
    """Protected resource metadata (RFC 9728)."""

    resource: str
    authorization_servers: Sequence[str]
    bearer_methods_supported: Sequence[str]
    scopes_supported: Sequence[str]


class JsonWebKeyBody(Standard):
    """A public key (RFC 7517)."""

    kty: Literal["EC"]
    crv: Literal["P-256"]
    x: str
    y: str
    kid: str
    use: Literal["sig"]
    alg: Literal["ES256"]


class KeySetBody(Standard):
    """Public keys (RFC 7517 5)."""

    keys: Sequence[JsonWebKeyBody]
