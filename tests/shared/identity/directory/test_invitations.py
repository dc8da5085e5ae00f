"""Invitations: a user joins only by accepting, and gets only a role that the author could still grant."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from sqlalchemy import text

from shared.db.database import Database, Session
from shared.errors import PermissionDenied, ValidationFailed
from shared.identity import errors
from shared.identity.access.authorization import OPERATOR, Actor
from shared.identity.access.roles import Role
from shared.identity.directory.invitation_acceptance import accept_invitation, register_invited
from shared.identity.directory.invitations import (
    IssuedInvitation,
    get_invitation,
    invite_member,
    list_invitations,
    revoke_invitation,
)
from shared.identity.directory.memberships import add_member, change_member_role, list_members, remove_member
from shared.identity.directory.organizations import suspend_organization
from shared.identity.directory.users import disable_user, get_user
from shared.identity.secrets import Prefix, issue
from tests.shared.identity.conftest import World
from tests.support.data.identity import IdentityFactory, Person


@pytest.fixture
def owner(factory: IdentityFactory, world: World) -> Person:
    return factory.person(world.organization_id, Role.WORKSPACE_OWNER)


@pytest.fixture
def guest(factory: IdentityFactory) -> Person:
    """Return a member of another organization."""
    return factory.person(factory.organization("Elsewhere").id)


Invite = Callable[..., IssuedInvitation]


@pytest.fixture
def invite(database: Database, world: World, factory: IdentityFactory, owner: Person) -> Invite:
    def invite(role: Role = Role.MEMBER, *, actor: Actor | None = None, **whom: object) -> IssuedInvitation:
        actor = actor or factory.actor(owner)
        with database.transaction() as session:
            return invite_member(
                session,
                actor=actor,
                organization_id=world.organization_id,
                role=role,
                **whom,  # type: ignore[arg-type]
            )

    return invite


def members(session: Session, organization_id: UUID) -> set[UUID]:
    listed = list_members(session, actor=OPERATOR, organization_id=organization_id)
    return {member.user_id for member in listed.items}


def test_an_invited_user_joins_by_accepting_and_not_before(
    factory: IdentityFactory, database: Database, world: World, guest: Person, invite: Invite
) -> None:
    for whom in ({"email": guest.email.upper()}, {"user_id": guest.user_id}):
        token = invite(Role.WORKSPACE_ADMIN, **whom).token.value
        before = factory.actor(guest).caller.organization_id
        with database.transaction() as session:
            assert guest.user_id not in members(session, world.organization_id)
            joined = accept_invitation(session, actor=factory.actor(guest), token=token)
            assert (joined.user_id, joined.role) == (guest.user_id, Role.WORKSPACE_ADMIN)
        assert factory.actor(guest).caller.organization_id == before, "a second organization is not selected"
        with pytest.raises(errors.InvitationEnded), database.transaction() as session:
            accept_invitation(session, actor=factory.actor(guest), token=token)
        with database.transaction() as session:
            remove_member(
                session, actor=OPERATOR, organization_id=world.organization_id, user_id=guest.user_id
            )


def test_invitation_is_not_accepted_by_another_user(
    factory: IdentityFactory, database: Database, guest: Person, owner: Person, invite: Invite
) -> None:
    other = factory.person(factory.organization().id)
    bound = factory.person(factory.organization().id, bound=True)
    token = invite(email=guest.email).token.value
    for person in (other, owner):
        with pytest.raises(errors.ResourceNotFound), database.transaction() as session:
            accept_invitation(session, actor=factory.actor(person), token=token)
    own = invite(email=bound.email).token.value
    with pytest.raises(PermissionDenied), database.transaction() as session:
        accept_invitation(session, actor=factory.actor(bound), token=own)
    for unknown in ("", "svi_x", issue(Prefix.INVITATION).value, guest.api_key):
        with pytest.raises(errors.ResourceNotFound), database.transaction() as session:
            accept_invitation(session, actor=factory.actor(guest), token=unknown)


def test_an_address_without_an_account_registers_with_a_key_of_its_own(
    factory: IdentityFactory, database: Database, world: World, invite: Invite
) -> None:
    token = invite(email="new@example.org").token.value
    with database.transaction() as session:
        made = register_invited(session, token=token, request_id="r-1")
    newcomer = Person(
        user_id=made.membership.user_id, email=made.membership.email, api_key=made.key.secret.value
    )
    caller = factory.actor(newcomer).caller
    assert caller.organization_id == world.organization_id
    assert not caller.is_operator
    with pytest.raises(errors.InvitationEnded), database.transaction() as session:
        register_invited(session, token=token, request_id=None)


def test_an_account_is_not_registered_again_nor_given_a_key(
    database: Database, guest: Person, invite: Invite
) -> None:
    for whom in ({"email": guest.email}, {"user_id": guest.user_id}):
        token = invite(**whom).token.value
        with pytest.raises(errors.AlreadyExists), database.transaction() as session:
            register_invited(session, token=token, request_id=None)


def test_one_of_two_registrations_at_once_succeeds(database: Database, invite: Invite) -> None:
    token = invite(email="twice@example.org").token.value

    def register(_: int) -> bool:
        try:
            with database.transaction() as session:
                register_invited(session, token=token, request_id=None)
        except (errors.InvitationEnded, errors.AlreadyExists):
            return False
        return True

    with ThreadPoolExecutor(2) as pool:
        assert sorted(pool.map(register, range(2))) == [False, True]


def test_an_invitation_ends_by_time_and_by_revocation(
    factory: IdentityFactory, database: Database, guest: Person, owner: Person, invite: Invite
) -> None:
    revoked, expired = invite(email=guest.email), invite(email=guest.email)
    with database.transaction() as session:
        by = factory.actor(owner)
        first = revoke_invitation(session, actor=by, invitation_id=revoked.invitation.id)
        assert first.revoked_at is not None
        assert revoke_invitation(session, actor=by, invitation_id=revoked.invitation.id) == first
        session.execute(
            text("UPDATE invitations SET expires_at = now() WHERE id = :id"), {"id": expired.invitation.id}
        )
    for ended in (revoked, expired):
        with pytest.raises(errors.InvitationEnded), database.transaction() as session:
            accept_invitation(session, actor=factory.actor(guest), token=ended.token.value)
    with pytest.raises(ValidationFailed):
        invite(email=guest.email, expires_at=datetime.now(UTC) - timedelta(days=1))
    distant = invite(email=guest.email, expires_at=datetime.now(UTC) + timedelta(days=400))
    assert distant.invitation.expires_at < datetime.now(UTC) + timedelta(days=31)


def demote(session: Session, world: World, person: Person) -> None:
    change_member_role(
        session,
        actor=OPERATOR,
        organization_id=world.organization_id,
        user_id=person.user_id,
        role=Role.MEMBER,
    )


def remove(session: Session, world: World, person: Person) -> None:
    remove_member(session, actor=OPERATOR, organization_id=world.organization_id, user_id=person.user_id)


def disable(session: Session, _: World, person: Person) -> None:
    disable_user(session, actor=OPERATOR, user_id=person.user_id)


@pytest.mark.parametrize("fall", [demote, remove, disable])
def test_an_invitation_does_not_outlive_its_authors_right_to_make_it(
    factory: IdentityFactory,
    database: Database,
    world: World,
    owner: Person,
    guest: Person,
    invite: Invite,
    fall: Callable[[Session, World, Person], None],
) -> None:
    token = invite(Role.WORKSPACE_OWNER, email=guest.email).token.value
    with database.transaction() as session:
        fall(session, world, owner)
    with pytest.raises(errors.InvitationEnded), database.transaction() as session:
        accept_invitation(session, actor=factory.actor(guest), token=token)


def test_nobody_invites_above_themselves_or_to_where_they_manage_nobody(
    factory: IdentityFactory, world: World, guest: Person, invite: Invite
) -> None:
    admin = factory.actor(factory.person(world.organization_id, Role.WORKSPACE_ADMIN))
    member = factory.actor(factory.person(world.organization_id))
    with pytest.raises(errors.GrantExceedsGranter):
        invite(Role.WORKSPACE_OWNER, actor=admin, email=guest.email)
    with pytest.raises(PermissionDenied):
        invite(actor=member, email=guest.email)
    with pytest.raises(errors.ResourceNotFound):
        invite(actor=factory.actor(guest), email=guest.email)
    with pytest.raises(ValidationFailed):
        invite(Role.PROJECT_AGENT, email=guest.email)
    for nobody in ({}, {"email": guest.email, "user_id": guest.user_id}):
        with pytest.raises(ValidationFailed):
            invite(**nobody)


def test_members_are_not_invited_again_and_open_invitations_are_bounded(
    database: Database, owner: Person, guest: Person, invite: Invite, monkeypatch: pytest.MonkeyPatch
) -> None:
    for whom in ({"email": owner.email}, {"user_id": owner.user_id}):
        with pytest.raises(errors.AlreadyExists):
            invite(**whom)
    monkeypatch.setattr("shared.identity.directory.invitations.OPEN_LIMIT", 1)
    first = invite(email=guest.email)
    with pytest.raises(errors.TooManyLive):
        invite(email=guest.email)
    with database.transaction() as session:
        revoke_invitation(session, actor=OPERATOR, invitation_id=first.invitation.id)
    invite(email=guest.email)


def test_invitations_are_listed_to_those_who_manage_members_alone(
    factory: IdentityFactory, database: Database, world: World, guest: Person, invite: Invite
) -> None:
    issued = invite(email=guest.email).invitation
    admin = factory.actor(factory.person(world.organization_id, Role.WORKSPACE_ADMIN))
    with database.transaction() as session:
        listed = list_invitations(session, actor=admin, organization_id=world.organization_id)
        assert listed.items == (issued,)
    for person, refusal in (
        (factory.person(world.organization_id), PermissionDenied),
        (guest, errors.ResourceNotFound),
    ):
        with pytest.raises(refusal), database.transaction() as session:
            get_invitation(session, actor=factory.actor(person), invitation_id=issued.id)
        with pytest.raises(refusal), database.transaction() as session:
            revoke_invitation(session, actor=factory.actor(person), invitation_id=issued.id)


def test_nobody_joins_a_suspended_organization(
    factory: IdentityFactory, database: Database, world: World, guest: Person, invite: Invite
) -> None:
    token = invite(email=guest.email).token.value
    with database.transaction() as session:
        suspend_organization(session, actor=OPERATOR, organization_id=world.organization_id)
    with pytest.raises(errors.OrganizationSuspended), database.transaction() as session:
        accept_invitation(session, actor=factory.actor(guest), token=token)


def test_only_operators_make_others_members(
    factory: IdentityFactory, database: Database, world: World, owner: Person, guest: Person
) -> None:
    for email in (guest.email, "unknown@example.org"):
        with pytest.raises(PermissionDenied), database.transaction() as session:
            add_member(
                session,
                actor=factory.actor(owner),
                organization_id=world.organization_id,
                email=email,
                role=Role.MEMBER,
            )


def test_no_organization_is_selected_for_a_user_who_has_another(
    factory: IdentityFactory, database: Database, world: World
) -> None:
    first, second = factory.organization(), factory.organization()
    person = factory.person(first.id)
    with database.transaction() as session:
        add_member(
            session, actor=OPERATOR, organization_id=second.id, email=person.email, role=Role.WORKSPACE_OWNER
        )
        remove_member(session, actor=OPERATOR, organization_id=first.id, user_id=person.user_id)
        assert get_user(session, actor=OPERATOR, user_id=person.user_id).active_organization_id is None
        add_member(
            session,
            actor=OPERATOR,
            organization_id=world.organization_id,
            email=person.email,
            role=Role.MEMBER,
        )
        assert get_user(session, actor=OPERATOR, user_id=person.user_id).active_organization_id is None
    caller = factory.actor(person).caller
    assert (caller.organization_id, caller.payer_id) == (None, None)
