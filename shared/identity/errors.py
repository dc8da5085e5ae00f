"""The errors of identity. The docstring of each class is the sentence that the client gets.

    DomainError
    ├── AuthenticationRequired, InvalidToken, AttributionInvalid            authentication failed
    ├── AttributionEmpty, AttributionRepeated, PrincipalSelectorNotAllowed  a header is malformed
    ├── AttributionMismatch, PayerMismatch, OrganizationSuspended, OwnerRequired, GrantExceedsGranter
    ├── ResourceNotFound, AlreadyExists, LastOwner, TooManyLive, KeyNotPublished, InvitationEnded
    ├── VersionRevoked, TargetDisabled
    └── OAuthError: InvalidRequest, InvalidClient, …                        the token endpoint (RFC 6749 5.2)

No message contains a token or reveals which part of a secret was correct.
"""

from shared.errors import DomainError, Kind


class AuthenticationRequired(DomainError):
    """This URL requires a credential. Send it as `Authorization: Bearer …`."""

    code = "authentication_required"
    kind = Kind.UNAUTHENTICATED


class InvalidToken(DomainError):
    """The bearer credential is malformed, unknown, expired or revoked."""

    code = "invalid_token"
    kind = Kind.UNAUTHENTICATED


class ExpiredToken(InvalidToken):
    """The credential has expired. Obtain a new one."""


class AttributionInvalid(DomainError):
    """The Service-Usage-Attribution header is forged or expired, or its identity or distribution is disabled."""

    code = "attribution_invalid"
    kind = Kind.UNAUTHENTICATED


class AttributionMismatch(DomainError):
    """The Service-Usage-Attribution header was issued for another deployment."""

    code = "attribution_mismatch"
    kind = Kind.DENIED


class AttributionEmpty(DomainError):
    """The Service-Usage-Attribution header is empty. Omit it for the deployment's own calls."""

    code = "attribution_empty"
    kind = Kind.MALFORMED


class AttributionRepeated(DomainError):
    """The Service-Usage-Attribution header was sent more than once."""

    code = "attribution_repeated"
    kind = Kind.MALFORMED


class PrincipalSelectorNotAllowed(DomainError):
    """The Service-Principal-Selector header must not be sent."""

    code = "principal_selector_not_allowed"
    kind = Kind.MALFORMED


class PayerMismatch(DomainError):
    """The organizationId differs from the organization that pays for this call."""

    code = "payer_mismatch"
    kind = Kind.DENIED


class OrganizationSuspended(DomainError):
    """The organization is suspended. Only an operator of the installation can resume it."""

    code = "organization_suspended"
    kind = Kind.DENIED


class OwnerRequired(DomainError):
    """This operation needs an owner identity, which a user's API key does not have. Use a deployment's access token."""

    code = "owner_required"
    kind = Kind.DENIED


class GrantExceedsGranter(DomainError):
    """The role contains permissions that you do not hold. You can grant only permissions that you hold yourself."""

    code = "grant_exceeds_granter"
    kind = Kind.DENIED


class ResourceNotFound(DomainError):
    """The resource does not exist, or this caller may not see it."""

    code = "not_found"
    kind = Kind.NOT_FOUND


class AlreadyExists(DomainError):
    """A resource with these values already exists."""

    code = "already_exists"
    kind = Kind.CONFLICT


class LastOwner(DomainError):
    """This is the organization's last active owner. Make another member an owner first."""

    code = "last_owner"
    kind = Kind.CONFLICT


class TooManyLive(DomainError):
    """The limit of live credentials is reached. Revoke one first."""

    code = "too_many_live_credentials"
    kind = Kind.CONFLICT


class KeyNotPublished(DomainError):
    """The next signing key was published less than five minutes ago. Retry later."""

    code = "signing_key_not_published"
    kind = Kind.CONFLICT


class InvitationEnded(DomainError):
    """The invitation has expired, was revoked or accepted, or its author may no longer invite members."""

    code = "invitation_ended"
    kind = Kind.GONE


class VersionRevoked(DomainError):
    """A revoked version cannot be activated again. Deploy a new version."""

    code = "version_revoked"
    kind = Kind.CONFLICT


class TargetDisabled(DomainError):
    """The distribution's deployment or receiving identity is disabled."""

    code = "target_disabled"
    kind = Kind.CONFLICT


class OAuthError(DomainError):
    """The token request was refused."""

    code = "invalid_request"
    kind = Kind.MALFORMED


class InvalidRequest(OAuthError):
    """A parameter of the request is missing, repeated or malformed."""

    code = "invalid_request"


class InvalidClient(OAuthError):
    """The client id or secret is wrong, expired or revoked, or the deployment is disabled."""

    code = "invalid_client"
    kind = Kind.UNAUTHENTICATED


class UnauthorizedClient(OAuthError):
    """This client may currently not obtain tokens."""

    code = "unauthorized_client"


class UnsupportedGrantType(OAuthError):
    """Only the grant type `client_credentials` is supported."""

    code = "unsupported_grant_type"


class InvalidScope(OAuthError):
    """The scope is unknown or malformed, or exceeds the permissions of the deployment's Daemon Identity."""

    code = "invalid_scope"
