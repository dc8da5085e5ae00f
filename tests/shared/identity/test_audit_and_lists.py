"""The audit log, pagination of lists, and validation of administrative input."""

from collections.abc import Callable
from uuid import UUID

import pytest
from sqlalchemy import delete
from sqlalchemy.exc import DBAPIError

from shared.db.database import Database, Session
from shared.errors import ValidationFailed
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.audit import list_audit_events
from shared.identity.credentials.api_keys import issue_api_key, revoke_api_key
from shared.identity.credentials.client_credentials import issue_client_credential, revoke_client_credential
from shared.identity.directory.deployments import disable_deployment, get_deployment, list_deployments
from shared.identity.directory.distributions import get_distribution, update_distribution
from shared.identity.directory.identities import get_identity, list_identities
from shared.identity.directory.memberships import remove_member
from shared.identity.directory.organizations import create_organization, get_organization, rename_organization
from shared.identity.directory.role_bindings import unbind_role
from shared.identity.directory.users import create_user, get_user, list_users
from shared.identity.directory.versions import revoke_version
from shared.identity.errors import ResourceNotFound
from shared.identity.tables import audit_events
from tests.shared.identity.conftest import World
from tests.support.data.identity import IdentityFactory


def test_every_change_is_audited_with_actor_and_request_and_reads_are_not(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    admin = factory.actor(factory.person(world.organization_id, Role.WORKSPACE_ADMIN))
    with database.transaction() as session:
        disable_deployment(session, actor=admin, deployment_id=world.deployment.deployment.id)
        disable_deployment(session, actor=admin, deployment_id=world.deployment.deployment.id)
        list_deployments(session, actor=admin, organization_id=world.organization_id)
        events = list_audit_events(session, actor=admin, organization_id=world.organization_id).items
    (latest,) = [happened for happened in events if happened.actor_id == admin.user_id]
    assert (latest.action, latest.resource_kind) == ("deployment.disabled", "deployment")
    assert latest.resource_id == str(world.deployment.deployment.id)
    assert latest.request_id == "test-request"
    assert {"deployment.created", "identity.created", "distribution.created"} <= {
        happened.action for happened in events
    }


def test_the_audit_cannot_be_altered(database: Database, world: World) -> None:
    for statement in (
        delete(audit_events),
        audit_events.update().values(action="nothing.happened"),
    ):
        with pytest.raises(DBAPIError, match="append-only"), database.transaction() as session:
            session.execute(statement)


def test_lists_come_in_pages_that_lose_and_repeat_nothing(
    factory: IdentityFactory, database: Database
) -> None:
    organization = factory.organization()
    made = [factory.principal(organization.id, f"p{number}").id for number in range(7)]
    found: list[UUID] = []
    cursor: str | None = None
    with database.transaction() as session:
        while True:
            page = list_identities(
                session, actor=OPERATOR, organization_id=organization.id, cursor=cursor, limit=3
            )
            found += [identity.id for identity in page.items]
            cursor = page.next_cursor
            if cursor is None:
                break
        newest = list_audit_events(session, actor=OPERATOR, organization_id=organization.id, limit=2)
    assert found == made
    assert [happened.resource_id for happened in newest.items] == [str(made[6]), str(made[5])]


@pytest.mark.parametrize(("cursor", "limit"), [("x", 1), (None, 0), (None, 101), (None, -1)])
def test_page_with_an_invalid_limit_or_cursor_is_refused(
    database: Database, cursor: str | None, limit: int
) -> None:
    with pytest.raises(ValidationFailed), database.transaction() as session:
        list_users(session, actor=OPERATOR, cursor=cursor, limit=limit)


@pytest.mark.parametrize("name", ["", "   ", "x" * 201, "a\nb", "a\u202eb", "a\x00b"])
def test_unfit_names_are_refused(factory: IdentityFactory, world: World, name: str) -> None:
    with pytest.raises(ValidationFailed):
        factory.principal(world.organization_id, name)


@pytest.mark.parametrize("networks", [[], [""], ["Slack"], ["a b"], ["x"] * 0, [f"n{n}" for n in range(21)]])
def test_unfit_networks_are_refused(
    factory: IdentityFactory, database: Database, world: World, networks: list[str]
) -> None:
    with pytest.raises(ValidationFailed), database.transaction() as session:
        update_distribution(
            session,
            actor=OPERATOR,
            distribution_id=world.distribution.distribution.id,
            networks=networks,
        )


@pytest.mark.parametrize("email", ["", "x", "@", "a@", "@b", "a b@c", "a@b\n"])
def test_unfit_addresses_are_refused(database: Database, email: str) -> None:
    with pytest.raises(ValidationFailed), database.transaction() as session:
        create_user(session, actor=OPERATOR, email=email)


def test_absent_resources_are_not_found(database: Database, factory: IdentityFactory) -> None:
    nobody = UUID(int=1)
    operations: list[Callable[[Session], object]] = [
        lambda s: get_organization(s, actor=OPERATOR, organization_id=nobody),
        lambda s: rename_organization(s, actor=OPERATOR, organization_id=nobody, name="x"),
        lambda s: get_identity(s, actor=OPERATOR, identity_id=nobody),
        lambda s: get_deployment(s, actor=OPERATOR, deployment_id=nobody),
        lambda s: get_distribution(s, actor=OPERATOR, distribution_id=nobody),
        lambda s: get_user(s, actor=OPERATOR, user_id=nobody),
        lambda s: revoke_api_key(s, actor=OPERATOR, key_id=nobody),
        lambda s: revoke_client_credential(s, actor=OPERATOR, credential_id=nobody),
        lambda s: revoke_version(s, actor=OPERATOR, version_id=nobody),
        lambda s: unbind_role(s, actor=OPERATOR, binding_id=nobody),
        lambda s: issue_client_credential(s, actor=OPERATOR, deployment_id=nobody),
        lambda s: issue_api_key(s, actor=OPERATOR, user_id=nobody, organization_id=None, name="x"),
        lambda s: create_organization(s, actor=OPERATOR, name="x", owner_id=nobody),
        lambda s: remove_member(s, actor=OPERATOR, organization_id=nobody, user_id=nobody),
    ]
    for operation in operations:
        with pytest.raises(ResourceNotFound), database.transaction() as session:
            operation(session)
