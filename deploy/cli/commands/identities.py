"""Commands for identities, role bindings and distributions: who may do what, and what comes in for whom."""

from uuid import UUID

import click

from deploy.cli.command_context import (
    acts_on,
    administration,
    choice,
    installation,
    lists,
    organization,
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
    help="How long the replaced secret stays good.",
)
_days = click.IntRange(1, domain.MAX_MEDIA_RETENTION_DAYS)
_KEPT = "How long what its networks bring is kept."


identities = click.Group("identities", help="Manage identities.")


@identities.command(
    "create", help="Create a Principal Identity; Daemon Identities come with their deployments."
)
@organization
@click.option("--name", required=True, help="What people call it.")
def create_principal_identity(organization_id: UUID, name: str) -> None:
    with administration() as session:
        made = principals.create_principal_identity(
            session, actor=OPERATOR, organization_id=organization_id, name=name
        )
    show(made)


lists(
    identities,
    principals.list_identities,
    "List the identities of an organization, of both kinds.",
    of="organization",
)
acts_on(
    identities,
    "identity",
    show=(principals.get_identity, "Get an identity."),
    disable=(
        principals.disable_identity,
        "Disable an identity: nothing is executed as it or received for it.",
    ),
    enable=(principals.enable_identity, "Enable a disabled identity."),
)


role_bindings = click.Group(
    "role-bindings", help="Manage the roles of identities, and of users over single identities."
)


@role_bindings.command(
    "bind-identity", help="Create a role binding of an identity, over its organization or over one identity."
)
@organization
@click.option("--identity", "identity_id", type=click.UUID, required=True, help="Who gets the role.")
@click.option("--role", type=choice(Role), required=True, help="What it may do then.")
@click.option("--over", "owner_id", type=click.UUID, help="One identity; the whole organization without it.")
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
@organization
@click.option("--user", "user_id", type=click.UUID, required=True, help="Who gets the role.")
@click.option("--role", type=choice(Role), required=True, help="What it may do then.")
@click.option("--over", "owner_id", type=click.UUID, required=True, help="The identity.")
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


lists(
    role_bindings,
    bindings.list_role_bindings,
    "List the role bindings of an organization.",
    of="organization",
)
acts_on(
    role_bindings,
    "binding",
    show=(bindings.get_role_binding, "Get a role binding."),
    unbind=(bindings.unbind_role, "Delete a role binding."),
)


distributions = click.Group("distributions", help="Manage distributions.")


@distributions.command(
    "create", help="Create a distribution; its token and webhook secret are shown only now."
)
@organization
@click.option("--name", required=True, help="What people call it.")
@click.option("--network", "networks", multiple=True, required=True, help="May be given several times.")
@click.option(
    "--principal-identity", "principal_identity_id", type=click.UUID, required=True, help="Who receives."
)
@click.option("--deployment", "deployment_id", type=click.UUID, required=True, help="Who answers.")
@click.option(
    "--media-retention-days",
    type=_days,
    default=domain.DEFAULT_MEDIA_RETENTION_DAYS,
    show_default=True,
    help=_KEPT,
)
@click.option(
    "--routes-messages/--no-routes-messages",
    default=False,
    help="Send messages of its networks to the agent.",
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


lists(
    distributions, domain.list_distributions, "List the distributions of an organization.", of="organization"
)


@distributions.command("update", help="Update a distribution; what is not given stays.")
@click.argument("distribution_id", type=click.UUID, metavar="ID")
@click.option("--name", help="What people call it.")
@click.option("--network", "networks", multiple=True, help="May be given several times.")
@click.option("--media-retention-days", type=_days, help=_KEPT)
@click.option(
    "--routes-messages/--no-routes-messages", default=None, help="Send messages of its networks to the agent."
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
            networks=networks or None,
            media_retention_days=media_retention_days,
            routes_messages=routes_messages,
        )
    show(changed)


@distributions.command("rotate-token", help="Rotate a distribution's token; the new one is shown only now.")
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
    "rotate-webhook-secret", help="Rotate a distribution's webhook secret; the new one is shown only now."
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


acts_on(
    distributions,
    "distribution",
    show=(domain.get_distribution, "Get a distribution."),
    disable=(
        domain.disable_distribution,
        "Disable a distribution: its token and attributions are refused until it is enabled.",
    ),
    enable=(domain.enable_distribution, "Enable a disabled distribution."),
)
