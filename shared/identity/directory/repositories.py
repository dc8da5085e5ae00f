"""Repositories of GitHub deployments. A repository's workflows exchange GitHub's tokens for access tokens.

A repository is identified by its issuer and GitHub's immutable ids. Ids that the administrator did not enter are
taken from the first accepted token: another repository can reuse a name but not an id. The workflows' access tokens
belong to a client credential whose secret is unknown to everyone. Replacing or removing the repository revokes this
credential, and so all of these tokens.
"""

import re
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from sqlalchemy import Row, Select, delete, func, insert, select, update

from shared.db.database import Session
from shared.db.schema import columns_of
from shared.errors import DomainError, Kind, invalid_field
from shared.identity.access.authorization import Actor, authorize_for_deployment
from shared.identity.access.permissions import Permission
from shared.identity.audit import record
from shared.identity.conditional_updates import mark_disabled
from shared.identity.credentials.client_credentials import insert_client_credential
from shared.identity.directory.deployments import DeploymentKind
from shared.identity.field_validation import require_name
from shared.identity.lookups import get_one
from shared.identity.tables import client_credentials, deployment_repositories, deployments

_NAME = re.compile(r"[A-Za-z0-9](?:[A-Za-z0-9-]{0,38})/[A-Za-z0-9._-]{1,100}", re.ASCII)
_REF = re.compile(r"[^\x00-\x20\x7f~^:?*\[\\]{1,255}")
_NUMBER = re.compile(r"[1-9][0-9]{0,19}", re.ASCII)
_BRANCH = "refs/heads/"


class NoGitHubDeployment(DomainError):
    """Only a deployment of kind GitHub can have a repository."""

    code = "no_github_deployment"
    kind = Kind.CONFLICT


@dataclass(frozen=True, slots=True, kw_only=True)
class RepositoryDraft:
    """The settings of a repository. A `ref` without the prefix `refs/` names a branch."""

    repository: str
    ref: str | None = None
    environment: str | None = None
    repository_id: str | None = None
    repository_owner_id: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Repository:
    """A deployment's repository. If `ref` is None, every branch and tag matches.

    If `environment` is None, every environment matches.
    """

    deployment_id: UUID
    repository: str
    ref: str | None
    environment: str | None
    repository_id: str | None
    repository_owner_id: str | None
    updated_at: datetime
    created_at: datetime


def put_repository(
    session: Session, *, actor: Actor, deployment_id: UUID, draft: RepositoryDraft
) -> Repository:
    """Set or replace the repository of a GitHub deployment. Tokens of the previous repository are revoked.

    Raises PermissionDenied, ResourceNotFound, NoGitHubDeployment, ValidationFailed.
    """
    organization_id = _authorize(session, actor, deployment_id)
    values = _values(draft)
    kind = select(deployments.c.kind).where(deployments.c.id == deployment_id).with_for_update()
    if session.execute(kind).scalar_one() != DeploymentKind.GITHUB:
        raise NoGitHubDeployment
    # Create a new credential for each repository, so that tokens of the previous repository's workflows become
    # invalid.
    _remove(session, deployment_id)
    issued = insert_client_credential(session, deployment_id=deployment_id, expires_at=None)
    without_secret = update(client_credentials).where(client_credentials.c.id == issued.credential.id)
    session.execute(without_secret.values(is_of_workflows=True))
    values |= {"deployment_id": deployment_id, "credential_id": issued.credential.id}
    session.execute(insert(deployment_repositories).values(values))
    record(session, actor, "repository.set", deployment_id, organization_id=organization_id)
    return _get(session, deployment_id)


def get_repository(session: Session, *, actor: Actor, deployment_id: UUID) -> Repository:
    """Return a deployment's repository. Raises PermissionDenied, ResourceNotFound."""
    authorize_for_deployment(session, actor, Permission.ORGANIZATION_READ, deployment_id)
    return _get(session, deployment_id)


def remove_repository(session: Session, *, actor: Actor, deployment_id: UUID) -> None:
    """Delete a deployment's repository and revoke the tokens of its workflows. Raises ResourceNotFound."""
    organization_id = _authorize(session, actor, deployment_id)
    get_one(session, _of(deployment_id).with_for_update(), _repository)
    _remove(session, deployment_id)
    record(session, actor, "repository.removed", deployment_id, organization_id=organization_id)


def _authorize(session: Session, actor: Actor, deployment_id: UUID) -> UUID:
    return authorize_for_deployment(session, actor, Permission.CREDENTIAL_MANAGE, deployment_id)


def _remove(session: Session, deployment_id: UUID) -> None:
    removed = delete(deployment_repositories).where(deployment_repositories.c.deployment_id == deployment_id)
    credential_id = session.execute(
        removed.returning(deployment_repositories.c.credential_id)
    ).scalar_one_or_none()
    if credential_id is not None:
        mark_disabled(session, client_credentials, client_credentials.c.revoked_at, credential_id)


def _get(session: Session, deployment_id: UUID) -> Repository:
    return get_one(session, _of(deployment_id), _repository)


def _of(deployment_id: UUID) -> Select[Any]:
    found = select(*columns_of(Repository, deployment_repositories))
    return found.where(deployment_repositories.c.deployment_id == deployment_id)


def _repository(row: Row[Any]) -> Repository:
    return Repository(**row._asdict())


def _values(draft: RepositoryDraft) -> dict[str, Any]:
    ref = draft.ref
    # Expand the name of a branch to its full ref, because tokens always contain the full ref.
    if ref and not ref.startswith("refs/"):
        ref = _BRANCH + ref
    _require("repository", _NAME.fullmatch(draft.repository), "must be owner/name")
    _require(
        "ref", ref is None or _REF.fullmatch(ref), "must be a branch, or a whole ref such as refs/tags/v1"
    )
    for name in ("repository_id", "repository_owner_id"):
        value = getattr(draft, name)
        field = "repositoryId" if name == "repository_id" else "repositoryOwnerId"
        _require(field, value is None or _NUMBER.fullmatch(value), "must be the number that GitHub gives")
    environment = draft.environment
    return {
        "repository": draft.repository,
        "ref": ref,
        "environment": None if environment is None else require_name(environment, field="environment"),
        "repository_id": draft.repository_id,
        "repository_owner_id": draft.repository_owner_id,
        "updated_at": func.now(),
    }


def _require(field: str, holds: object, message: str) -> None:
    if not holds:
        raise invalid_field(field, message)
