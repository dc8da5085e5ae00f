"""Commands for deployments, for versions, daemons and client secrets of deployments, and for signing keys."""

from datetime import datetime
from uuid import UUID

import click

from deploy.cli.command_context import (
    INSTANT,
    add_actions,
    add_list,
    administration,
    choice,
    in_utc,
    installation,
    organization_option,
    required_id,
    show,
    show_page,
)
from shared.identity.access.authorization import OPERATOR
from shared.identity.credentials import client_credentials as credentials
from shared.identity.directory import deployments as domain
from shared.identity.directory import versions as deployed
from shared.identity.tokens import key_rotation
from shared.pagination import Page

_deployment = required_id("deployment")


deployments = click.Group("deployments", help="Manage deployments.")


@deployments.command(
    "create",
    help="Create a deployment with its Daemon Identity, first version and client secret (shown only once).",
)
@organization_option
@click.option("--name", required=True, help="Display name.")
@click.option(
    "--kind",
    type=choice(domain.DeploymentKind),
    default="Remote",
    show_default=True,
    help="Source of its agent: Remote (its own server) or GitHub (a repository).",
)
@click.option("--label", help="Label of its first version, for example a commit.")
def create_deployment(organization_id: UUID, name: str, kind: str, label: str | None) -> None:
    with administration() as session:
        made = domain.create_deployment(
            session,
            actor=OPERATOR,
            organization_id=organization_id,
            kind=domain.DeploymentKind(kind),
            name=name,
            label=label,
        )
    issued = made.credential
    show(made.deployment, client_credential_id=issued.credential.id, client_secret=issued.secret.value)


add_list(deployments, domain.list_deployments, "List the deployments of an organization.", of="organization")
add_actions(
    deployments,
    "deployment",
    show=(domain.get_deployment, "Get a deployment."),
    disable=(
        domain.disable_deployment,
        "Disable a deployment: its tokens and client secrets are rejected until it is enabled.",
    ),
    enable=(domain.enable_deployment, "Enable a disabled deployment."),
)


@deployments.command(
    "change-daemon",
    help="Replace the Daemon Identity (service account) of a deployment by a new or an earlier one.",
)
@click.argument("deployment_id", metavar="DEPLOYMENT", type=click.UUID)
@click.option(
    "--identity",
    "daemon_identity_id",
    type=click.UUID,
    help="Id of an earlier Daemon Identity; a new one is created by default.",
)
def change_daemon(deployment_id: UUID, daemon_identity_id: UUID | None) -> None:
    with administration() as session:
        changed = domain.change_daemon(
            session, actor=OPERATOR, deployment_id=deployment_id, daemon_identity_id=daemon_identity_id
        )
    show(changed)


versions = click.Group("versions", help="Manage the versions of a deployment.")


@versions.command("deploy", help="Create a version and activate it.")
@_deployment
@click.option("--label", help="Label of the version, for example a commit.")
def deploy_version(deployment_id: UUID, label: str | None) -> None:
    with administration() as session:
        made = deployed.deploy_version(session, actor=OPERATOR, deployment_id=deployment_id, label=label)
    show(made)


add_list(versions, deployed.list_versions, "List the versions of a deployment.", of="deployment")
add_actions(
    versions,
    "version",
    show=(deployed.get_version, "Get a version."),
    activate=(deployed.activate_version, "Activate an earlier version; a revoked one is refused."),
    revoke=(deployed.revoke_version, "Revoke a version and all tokens issued for it."),
)


client_credentials = click.Group("client-credentials", help="Manage the client secrets of a deployment.")


@client_credentials.command(
    "issue", help="Create a client secret, which is shown only once; a deployment has at most two."
)
@_deployment
@click.option(
    "--expires-at", type=INSTANT, help="Expiry in UTC, for example 2030-01-31T12:00:00Z; none by default."
)
def issue_client_credential(deployment_id: UUID, expires_at: datetime | None) -> None:
    with administration() as session:
        issued = credentials.issue_client_credential(
            session, actor=OPERATOR, deployment_id=deployment_id, expires_at=in_utc(expires_at)
        )
    show(issued.credential, client_secret=issued.secret.value)


add_list(
    client_credentials,
    credentials.list_client_credentials,
    "List the client secrets of a deployment, without the secrets.",
    of="deployment",
)
add_actions(
    client_credentials,
    "credential",
    show=(credentials.get_client_credential, "Get a client secret, without the secret itself."),
    revoke=(
        credentials.revoke_client_credential,
        "Revoke a client secret and all access tokens issued for it.",
    ),
)


signing_keys = click.Group("signing-keys", help="Manage the keys that sign tokens.")


@signing_keys.command("list", help="List the signing keys.")
def list_signing_keys() -> None:
    with administration() as session:
        keys = key_rotation.list_signing_keys(session, actor=OPERATOR)
    # Print one page: rotation deletes old keys, so the list is always short.
    show_page("signingKeys", Page(items=keys, next_cursor=None))


# Accept unknown options: a key id may begin with a hyphen, and click would parse such an id as an option.
@signing_keys.command(
    "revoke",
    context_settings={"ignore_unknown_options": True},
    help="Revoke a leaked signing key, with all tokens that it signed.",
)
@click.argument("kid")
def revoke_signing_key(kid: str) -> None:
    with installation() as (database, settings):
        key_rotation.revoke_key(database, settings, actor=OPERATOR, kid=kid)


@click.command("rotate-keys", help="Rotate the signing keys; tokens that are already signed stay valid.")
def rotate_keys() -> None:
    with installation() as (database, settings):
        key_rotation.rotate_keys(database, settings, actor=OPERATOR)
