"""What identity refuses, and how it says so.

    DomainError
    ├── AuthenticationRequired, InvalidToken, AttributionInvalid            who are you
    ├── AttributionEmpty, AttributionRepeated, PrincipalSelectorNotAllowed  the header rules
    ├── AttributionMismatch, PayerMismatch, OrganizationSuspended, OwnerRequired, GrantExceedsGranter
    ├── ResourceNotFound, AlreadyExists, LastOwner, TooManyLive, KeyNotPublished, InvitationEnded
    ├── VersionRevoked, TargetDisabled
    └── OAuthError: InvalidRequest, InvalidClient, …                        the token endpoint (RFC 6749 5.2)

No message repeats a token or says which part of a secret was right.
"""

from shared.errors import DomainError, Kind


class AuthenticationRequired(DomainError):
    """This address needs credentials: send `Authorization: Bearer …`."""

    code = "authentication_required"
    kind = Kind.UNAUTHENTICATED


class InvalidToken(DomainError):
    """The bearer credential is malformed, unknown, expired or revoked."""

    code = "invalid_token"
    kind = Kind.UNAUTHENTICATED


class ExpiredToken(InvalidToken):
    """The credential was good and has expired; get another one."""


class AttributionInvalid(DomainError):
    """The Service-Usage-Attribution header is forged, expired, or names what is no longer active."""

    code = "attribution_invalid"
    kind = Kind.UNAUTHENTICATED


class AttributionMismatch(DomainError):
    """The Service-Usage-Attribution header was issued for another deployment."""

    code = "attribution_mismatch"
    kind = Kind.DENIED


class AttributionEmpty(DomainError):
    """The Service-Usage-Attribution header is empty; omit it for calls of the deployment's own."""

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
    """The organization is suspended; its operator must review it."""

    code = "organization_suspended"
    kind = Kind.DENIED


class OwnerRequired(DomainError):
    """This operation needs an owner identity, which a user's API key does not have; use a deployment's token."""

    code = "owner_required"
    kind = Kind.DENIED


class GrantExceedsGranter(DomainError):
    """Nobody can grant or hand out permissions that they do not hold themselves."""

    code = "grant_exceeds_granter"
    kind = Kind.DENIED


class ResourceNotFound(DomainError):
    """There is no such resource, or it is not visible to this caller."""

    code = "not_found"
    kind = Kind.NOT_FOUND


class AlreadyExists(DomainError):
    """A resource with these values exists already."""

    code = "already_exists"
    kind = Kind.CONFLICT


class LastOwner(DomainError):
    """An organization keeps at least one active owner; make someone else an owner first."""

    code = "last_owner"
    kind = Kind.CONFLICT


class TooManyLive(DomainError):
    """The number of live secrets has reached its limit; revoke one first."""

    code = "too_many_live_credentials"
    kind = Kind.CONFLICT


class KeyNotPublished(DomainError):
    """The next signing key has not been published long enough to sign with; try again later."""

    code = "signing_key_not_published"
    kind = Kind.CONFLICT


class InvitationEnded(DomainError):
    """This invitation has expired, was revoked, was accepted before, or its author may not invite any more."""

    code = "invitation_ended"
    kind = Kind.GONE


class VersionRevoked(DomainError):
    """A revoked version cannot be made active again; deploy a new one."""

    code = "version_revoked"
    kind = Kind.CONFLICT


class TargetDisabled(DomainError):
    """The distribution's deployment or receiving identity is disabled."""

    code = "target_disabled"
    kind = Kind.CONFLICT


class OAuthError(DomainError):
    """The token request could not be granted."""

    code = "invalid_request"
    kind = Kind.MALFORMED


class InvalidRequest(OAuthError):
    """The request lacks a parameter, repeats one, or is otherwise malformed."""

    code = "invalid_request"


class InvalidClient(OAuthError):
    """The client id or secret is wrong, expired or revoked, or the deployment is disabled."""

    code = "invalid_client"
    kind = Kind.UNAUTHENTICATED


class UnauthorizedClient(OAuthError):
    """This client may not obtain tokens at the moment."""

    code = "unauthorized_client"


class UnsupportedGrantType(OAuthError):
    """Only the grant type `client_credentials` is supported."""

    code = "unsupported_grant_type"


class InvalidScope(OAuthError):
    """The scope is unknown, malformed, or exceeds what the deployment's daemon may do."""

    code = "invalid_scope"
