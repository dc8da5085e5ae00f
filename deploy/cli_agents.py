"""Commands for deployments, their versions and secrets, and for signing keys."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import click

from deploy.administration import (
    INSTANT,
    acts_on,
    administration,
    choice,
    in_utc,
    installation,
    paged,
    show,
    show_page,
)
from shared.identity import client_credentials as credentials
from shared.identity import deployments as domain
from shared.identity import key_rotation
from shared.identity import versions as deployed
from shared.identity.authorization import OPERATOR
from shared.pagination import Page

_organization = click.option("--organization", "organization_id", type=click.UUID, required=True)
_deployment = click.option("--deployment", "deployment_id", type=click.UUID, required=True)


@click.group()
def deployments() -> None:
    """Manage deployments."""


@deployments.command("create")
@_organization
@click.option("--name", required=True)
@click.option("--kind", type=choice(domain.DeploymentKind), default="Remote", show_default=True)
@click.option("--label", help="A name for its first version.")
def create_deployment(organization_id: UUID, name: str, kind: str, label: str | None) -> None:
    """Create a deployment with its daemon, first version and client secret, which is shown only now."""
    with administration() as session:
        made = domain.create_deployment(
            session,
            by=OPERATOR,
            organization_id=organization_id,
            kind=domain.DeploymentKind(kind),
            name=name,
            label=label,
        )
    issued = made.credential
    show(made.deployment, client_credential_id=issued.credential.id, client_secret=issued.secret.value)


@deployments.command("list")
@_organization
@paged
def list_deployments(organization_id: UUID, cursor: str | None, limit: int) -> None:
    """List the deployments of an organization."""
    with administration() as session:
        page = domain.list_deployments(
            session, by=OPERATOR, organization_id=organization_id, cursor=cursor, limit=limit
        )
    show_page("deployments", page)


acts_on(
    deployments,
    "deployment",
    {
        "show": domain.get_deployment,
        "disable": domain.disable_deployment,
        "enable": domain.enable_deployment,
    },
)


@click.group()
def versions() -> None:
    """Manage the versions of a deployment."""


@versions.command("deploy")
@_deployment
@click.option("--label", help="A name for it, such as a commit.")
def deploy_version(deployment_id: UUID, label: str | None) -> None:
    """Create a version and make it the active one."""
    with administration() as session:
        made = deployed.deploy_version(session, by=OPERATOR, deployment_id=deployment_id, label=label)
    show(made)


@versions.command("list")
@_deployment
@paged
def list_versions(deployment_id: UUID, cursor: str | None, limit: int) -> None:
    """List the versions of a deployment."""
    with administration() as session:
        page = deployed.list_versions(
            session, by=OPERATOR, deployment_id=deployment_id, cursor=cursor, limit=limit
        )
    show_page("versions", page)


acts_on(
    versions,
    "version",
    {
        "show": deployed.get_version,
        "activate": deployed.activate_version,
        "revoke": deployed.revoke_version,
    },
)


@click.group("client-credentials")
def client_credentials() -> None:
    """Manage the client secrets of a deployment."""


@client_credentials.command("issue")
@_deployment
@click.option("--expires-at", type=INSTANT, help="For example 2030-01-31T12:00:00Z.")
def issue_client_credential(deployment_id: UUID, expires_at: datetime | None) -> None:
    """Create another client secret, shown only now; two may live at once."""
    with administration() as session:
        issued = credentials.issue_client_credential(
            session, by=OPERATOR, deployment_id=deployment_id, expires_at=in_utc(expires_at)
        )
    show(issued.credential, client_secret=issued.secret.value)


@client_credentials.command("list")
@_deployment
@paged
def list_client_credentials(deployment_id: UUID, cursor: str | None, limit: int) -> None:
    """List the client secrets of a deployment, without the secrets."""
    with administration() as session:
        page = credentials.list_client_credentials(
            session, by=OPERATOR, deployment_id=deployment_id, cursor=cursor, limit=limit
        )
    show_page("clientCredentials", page)


acts_on(
    client_credentials,
    "credential",
    {"show": credentials.get_client_credential, "revoke": credentials.revoke_client_credential},
)


@click.group("signing-keys")
def signing_keys() -> None:
    """Manage the keys that sign tokens."""


@signing_keys.command("list")
def list_signing_keys() -> None:
    """List the signing keys."""
    with administration() as session:
        keys = key_rotation.list_signing_keys(session, by=OPERATOR)
    show_page("signingKeys", Page(items=keys, next_cursor=None))


# An id may begin with a hyphen, and is no option for that.
@signing_keys.command("revoke", context_settings={"ignore_unknown_options": True})
@click.argument("kid")
def revoke_signing_key(kid: str) -> None:
    """Revoke a key that leaked, with every token it signed."""
    with installation() as (database, settings):
        key_rotation.revoke_key(database, settings, by=OPERATOR, kid=kid)


@click.command("rotate-keys")
def rotate_keys() -> None:
    """Rotate the signing keys; tokens signed before stay good."""
    with installation() as (database, settings):
        key_rotation.rotate_keys(database, settings, by=OPERATOR)
