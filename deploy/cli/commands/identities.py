"""The command groups `identities`, `role-bindings` and `distributions`."""

from uuid import UUID

import click

from deploy.cli.command_context import (
    add_actions,
    add_list,
    administration,
    choice,
    installation,
    organization_option,
    show,
)
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role, ScopeKind
from shared.identity.directory import distributions as domain
from shared.identity.directory import identities as principals
from shared.identity.directory import role_bindings as bindings

_overlap = click.option(
    "--overlap-seconds",
    type=click.IntRange(0, domain.MAX_OVERLAP_SECONDS),
    default=domain.DEFAULT_OVERLAP_SECONDS,
    show_default=True,
    help="Seconds for which the replaced secret stays valid.",
)
_days = click.IntRange(1, domain.MAX_MEDIA_RETENTION_DAYS)
_RETENTION = "Days for which media received from its networks is kept."


identities = click.Group("identities", help="Manage identities.")


@identities.command(
    "create", help="Create a Principal Identity; Daemon Identities are created with their deployments."
)
@organization_option
@click.option("--name", required=True, help="Display name.")
def create_principal_identity(organization_id: UUID, name: str) -> None:
    with administration() as session:
        made = principals.create_principal_identity(
            session, actor=OPERATOR, organization_id=organization_id, name=name
        )
    show(made)


add_list(
    identities,
    principals.list_identities,
    "List the identities of an organization, of both kinds.",
    of="organization",
)
add_actions(
    identities,
    "identity",
    show=(principals.get_identity, "Get an identity."),
    disable=(
        principals.disable_identity,
        "Disable an identity: nothing runs with its permissions or is received for it until it is enabled.",
    ),
    enable=(principals.enable_identity, "Enable a disabled identity."),
)


role_bindings = click.Group(
    "role-bindings", help="Manage the roles of identities, and the roles of users over single identities."
)


@role_bindings.command(
    "bind-identity",
    help="Create a role binding of an identity, over its organization or over another identity.",
)
@organization_option
@click.option(
    "--identity", "identity_id", type=click.UUID, required=True, help="Identity that receives the role."
)
@click.option("--role", type=choice(Role), required=True, help="Role to grant.")
@click.option(
    "--over", "owner_id", type=click.UUID, help="Identity that the role covers; the organization by default."
)
def bind_identity_role(organization_id: UUID, identity_id: UUID, role: str, owner_id: UUID | None) -> None:
    with administration() as session:
        made = bindings.bind_identity_role(
            session,
            actor=OPERATOR,
            organization_id=organization_id,
            identity_id=identity_id,
            role=Role(role),
            scope_kind=ScopeKind.IDENTITY if owner_id else ScopeKind.ORGANIZATION,
            scope_id=owner_id or organization_id,
        )
    show(made)


@role_bindings.command("bind-user", help="Create a role binding of a member over one identity.")
@organization_option
@click.option("--user", "user_id", type=click.UUID, required=True, help="Member who receives the role.")
@click.option("--role", type=choice(Role), required=True, help="Role to grant.")
@click.option("--over", "owner_id", type=click.UUID, required=True, help="Identity that the role covers.")
def bind_user_role(organization_id: UUID, user_id: UUID, role: str, owner_id: UUID) -> None:
    with administration() as session:
        made = bindings.bind_user_role(
            session,
            actor=OPERATOR,
            organization_id=organization_id,
            user_id=user_id,
            role=Role(role),
            owner_id=owner_id,
        )
    show(made)


add_list(
    role_bindings,
    bindings.list_role_bindings,
    "List the role bindings of an organization.",
    of="organization",
)
add_actions(
    role_bindings,
    "binding",
    show=(bindings.get_role_binding, "Get a role binding."),
    unbind=(bindings.unbind_role, "Delete a role binding."),
)


distributions = click.Group("distributions", help="Manage distributions.")


@distributions.command(
    "create", help="Create a distribution; its token and webhook secret are shown only once."
)
@organization_option
@click.option("--name", required=True, help="Display name.")
@click.option(
    "--network",
    "networks",
    multiple=True,
    required=True,
    help="Messaging network, for example slack; repeatable.",
)
@click.option(
    "--principal-identity",
    "principal_identity_id",
    type=click.UUID,
    required=True,
    help="Receiving identity.",
)
@click.option(
    "--deployment", "deployment_id", type=click.UUID, required=True, help="Id of the deployment that replies."
)
@click.option(
    "--media-retention-days",
    type=_days,
    default=domain.DEFAULT_MEDIA_RETENTION_DAYS,
    show_default=True,
    help=_RETENTION,
)
@click.option(
    "--routes-messages/--no-routes-messages",
    default=False,
    help="Whether messages from its networks are sent to the agent.",
)
def create_distribution(
    *,
    organization_id: UUID,
    name: str,
    networks: tuple[str, ...],
    principal_identity_id: UUID,
    deployment_id: UUID,
    media_retention_days: int,
    routes_messages: bool,
) -> None:
    with installation() as (database, settings), database.transaction() as session:
        made = domain.create_distribution(
            session,
            settings,
            actor=OPERATOR,
            organization_id=organization_id,
            name=name,
            networks=networks,
            principal_identity_id=principal_identity_id,
            deployment_id=deployment_id,
            media_retention_days=media_retention_days,
            routes_messages=routes_messages,
        )
    show(made.distribution, token=made.token.value, webhook_secret=made.webhook_secret.value)


add_list(
    distributions, domain.list_distributions, "List the distributions of an organization.", of="organization"
)


@distributions.command("update", help="Update a distribution; omitted options stay unchanged.")
@click.argument("distribution_id", type=click.UUID, metavar="ID")
@click.option("--name", help="Display name.")
@click.option(
    "--network", "networks", multiple=True, help="Messaging network, for example slack; repeatable."
)
@click.option("--media-retention-days", type=_days, help=_RETENTION)
@click.option(
    "--routes-messages/--no-routes-messages",
    default=None,
    help="Whether messages from its networks are sent to the agent.",
)
def update_distribution(
    *,
    distribution_id: UUID,
    name: str | None,
    networks: tuple[str, ...],
    media_retention_days: int | None,
    routes_messages: bool | None,
) -> None:
    with administration() as session:
        changed = domain.update_distribution(
            session,
            actor=OPERATOR,
            distribution_id=distribution_id,
            name=name,
            # Convert an empty tuple, which click passes if --network is omitted, to None: networks stay unchanged.
            networks=networks or None,
            media_retention_days=media_retention_days,
            routes_messages=routes_messages,
        )
    show(changed)


@distributions.command("rotate-token", help="Rotate a distribution's token; the new one is shown only once.")
@click.argument("distribution_id", type=click.UUID, metavar="ID")
@_overlap
def rotate_distribution_token(distribution_id: UUID, overlap_seconds: int) -> None:
    with administration() as session:
        token = domain.rotate_distribution_token(
            session, actor=OPERATOR, distribution_id=distribution_id, overlap_seconds=overlap_seconds
        )
        distribution = domain.get_distribution(session, actor=OPERATOR, distribution_id=distribution_id)
    show(distribution, token=token.value)


@distributions.command(
    "rotate-webhook-secret", help="Rotate a distribution's webhook secret; the new one is shown only once."
)
@click.argument("distribution_id", type=click.UUID, metavar="ID")
@_overlap
def rotate_webhook_secret(distribution_id: UUID, overlap_seconds: int) -> None:
    with installation() as (database, settings), database.transaction() as session:
        secret = domain.rotate_webhook_secret(
            session,
            settings,
            actor=OPERATOR,
            distribution_id=distribution_id,
            overlap_seconds=overlap_seconds,
        )
        distribution = domain.get_distribution(session, actor=OPERATOR, distribution_id=distribution_id)
    show(distribution, webhook_secret=secret.value)


add_actions(
    distributions,
    "distribution",
    show=(domain.get_distribution, "Get a distribution."),
    disable=(
        domain.disable_distribution,
        "Disable a distribution: its token and attributions are rejected until it is enabled.",
    ),
    enable=(domain.enable_distribution, "Enable a disabled distribution."),
)
