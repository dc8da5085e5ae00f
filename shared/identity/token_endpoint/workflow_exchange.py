"""Token exchange (RFC 8693): exchange the token of a GitHub workflow for a Version access token, once per token.

The workflow must run in the deployment's repository, at its ref and in its environment. A token with the known
repository id and another name comes from a renamed repository and is accepted. A token with the known name and
another id is refused. Names and ids are unique only within one issuer, so the issuer of the first accepted token is
stored with the ids.
"""

from hashlib import sha256
from typing import Any
from uuid import UUID

from sqlalchemy import func, select, update
from sqlalchemy.dialects.postgresql import insert

from shared.config.settings import Settings
from shared.db.database import Database, Session
from shared.identity.ascii_case import fold_ascii
from shared.identity.errors import InvalidRequest
from shared.identity.tables import deployment_repositories, deployments, revoked_tokens
from shared.identity.token_endpoint.token_exchange import find_client, issue_token
from shared.identity.tokens.access_tokens import AccessToken
from shared.identity.tokens.jwks_client import IssuerKeys
from shared.identity.tokens.jws import CLOCK_LEEWAY_SECONDS, TokenRefused
from shared.identity.tokens.signing_keys import SigningKeys
from shared.identity.tokens.workflow_tokens import WorkflowClaims, verify_workflow_token
from shared.observability.telemetry import get_logger

log = get_logger(__name__)

_PULL_REQUESTS = "refs/pull/"


class SubjectTokenRefused(InvalidRequest):
    """The subject token is invalid, or this client may not exchange it."""


def exchange_workflow_token(
    database: Database,
    settings: Settings,
    keys: SigningKeys,
    issuers: IssuerKeys,
    *,
    client_id: str,
    subject_token: str,
    scope: str | None = None,
) -> AccessToken:
    """Exchange a workflow's token for a short-lived access token, narrowed to `scope` if given.

    Raises SubjectTokenRefused for any fault of the token; the log has the reason. Raises InvalidClient,
    UnauthorizedClient and InvalidScope for the same reasons as `exchange`.
    """
    try:
        claims = verify_workflow_token(issuers, subject_token, audience=settings.base_url, now=keys.now())
        with database.transaction() as session:
            repository = _find(session, client_id)
            _require_match(repository, claims)
            # An error below rolls this use back, so that the token can be used again after an invalid client.
            _use_once(session, claims)
            _pin(session, repository, claims)
            client = find_client(session, repository.credential_id)
    except TokenRefused as refusal:
        log.warning("workflow_token.refused", client_id=client_id, reason=str(refusal))
        raise SubjectTokenRefused from refusal
    token = issue_token(keys, settings, client, scope)
    log.info(
        "workflow_token.exchanged",
        deployment_id=client.deployment_id,
        repository=claims.repository,
        ref=claims.ref,
        sha=claims.sha,
    )
    return token


def _find(session: Session, client_id: str) -> Any:
    """Return the repository of a client's deployment, locked. Raises TokenRefused."""
    try:
        client = UUID(client_id)
    except ValueError:
        raise TokenRefused("client") from None
    found = (
        select(deployment_repositories)
        .join(deployments, deployments.c.id == deployment_repositories.c.deployment_id)
        .where(deployments.c.client_id == client)
        .with_for_update(of=deployment_repositories)
    )
    row = session.execute(found).one_or_none()
    if row is None:
        raise TokenRefused("client")
    return row


def _require_match(repository: Any, claims: WorkflowClaims) -> None:
    if repository.issuer not in (None, claims.issuer):
        raise TokenRefused("issuer")
    if repository.repository_id is None:
        if fold_ascii(claims.repository) != fold_ascii(repository.repository):
            raise TokenRefused("repository")
    elif claims.repository_id != repository.repository_id:
        raise TokenRefused("repository id")
    if repository.repository_owner_id not in (None, claims.repository_owner_id):
        raise TokenRefused("owner id")
    # Without a configured ref, accept every branch and tag but no pull request: anyone may be the author of a pull
    # request.
    if repository.ref is None:
        if claims.ref.startswith(_PULL_REQUESTS):
            raise TokenRefused("pull request")
    elif claims.ref != repository.ref:
        raise TokenRefused("ref")
    expected, sent = repository.environment, claims.environment or ""
    if expected is not None and fold_ascii(expected) != fold_ascii(sent):
        raise TokenRefused("environment")


def _use_once(session: Session, claims: WorkflowClaims) -> None:
    """Store a token as revoked until it expires, so that it is used once. Raises TokenRefused for a second use."""
    # Hash the id together with the issuer, because token ids are unique only within one issuer.
    used = sha256(f"{claims.issuer} {claims.token_id}".encode()).hexdigest()
    until = func.to_timestamp(claims.expires_at_seconds + 2 * CLOCK_LEEWAY_SECONDS)
    first = insert(revoked_tokens).values(jti=f"workflow {used}", expires_at=until).on_conflict_do_nothing()
    if session.execute(first.returning(revoked_tokens.c.jti)).one_or_none() is None:
        raise TokenRefused("used")


def _pin(session: Session, repository: Any, claims: WorkflowClaims) -> None:
    """Store the issuer and ids of the first accepted token, and the new name of a renamed repository."""
    pinned = {
        "issuer": claims.issuer,
        "repository": claims.repository,
        "repository_id": claims.repository_id,
        "repository_owner_id": claims.repository_owner_id,
    }
    if any(getattr(repository, name) != value for name, value in pinned.items()):
        mine = deployment_repositories.c.deployment_id == repository.deployment_id
        session.execute(update(deployment_repositories).where(mine).values(**pinned, updated_at=func.now()))
