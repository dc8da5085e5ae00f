"""E-mail addresses are compared ignoring ASCII case only: a letter that Unicode folds onto ASCII is different."""

from uuid import uuid4

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sqlalchemy import text

from shared.db.database import Database
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.roles import Role
from shared.identity.ascii_case import fold_ascii
from shared.identity.directory.invitation_acceptance import accept_invitation
from shared.identity.directory.invitations import invite_member
from shared.identity.directory.users import create_user, find_user
from shared.identity.errors import AlreadyExists, ResourceNotFound
from shared.identity.sign_in.console_sessions import sign_in_as
from tests.shared.identity.conftest import World
from tests.support.data.identity import IdentityFactory

LIKE_IT = [("k", "\u212a"), ("i", "\u0130"), ("x", "\u00d7"), ("i", "\u0456")]
"""The Kelvin sign, a dotted capital I, a sign of multiplication, and a Cyrillic letter."""


def make_address() -> str:
    return f"mike.{uuid4().hex}@example.org"


def test_the_case_of_ascii_does_not_count(database: Database) -> None:
    address = make_address()
    with database.transaction() as session:
        made = create_user(session, actor=OPERATOR, email=address)
        assert find_user(session, address.upper()) == made.id
        signed_in = sign_in_as(session, address.title())
    assert signed_in is not None
    with pytest.raises(AlreadyExists), database.transaction() as session:
        create_user(session, actor=OPERATOR, email=address.upper())


@pytest.mark.parametrize(("letter", "like_it"), LIKE_IT)
def test_an_address_that_looks_like_anothers_is_not_theirs(
    database: Database, letter: str, like_it: str
) -> None:
    address = make_address()
    other = address.replace(letter, like_it)
    with database.transaction() as session:
        made = create_user(session, actor=OPERATOR, email=address)
        assert sign_in_as(session, other) is None
        assert find_user(session, other) is None
        lookalike = create_user(session, actor=OPERATOR, email=other)
        assert (find_user(session, address), find_user(session, other)) == (made.id, lookalike.id)


@pytest.mark.parametrize(("letter", "like_it"), LIKE_IT)
def test_an_invitation_is_not_for_an_address_that_looks_like_its_own(
    database: Database, factory: IdentityFactory, world: World, letter: str, like_it: str
) -> None:
    address = make_address()
    other = address.replace(letter, like_it)
    guest = factory.person(factory.organization("Elsewhere").id)
    with database.transaction() as session:
        session.execute(
            text("UPDATE users SET email = :email WHERE id = :id"), {"email": other, "id": guest.user_id}
        )
        invited = invite_member(
            session,
            actor=factory.actor(factory.person(world.organization_id, Role.WORKSPACE_OWNER)),
            organization_id=world.organization_id,
            role=Role.MEMBER,
            email=address,
        )
    with pytest.raises(ResourceNotFound), database.transaction() as session:
        accept_invitation(session, actor=factory.actor(guest), token=invited.token.value)


@settings(max_examples=50, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.text())
def test_python_and_the_database_fold_alike(database: Database, address: str) -> None:
    kept = address.encode("utf-8", "ignore").decode().replace("\0", "")
    with database.autocommit() as session:
        assert session.execute(text('SELECT lower(:it COLLATE "C")'), {"it": kept}).scalar() == fold_ascii(
            kept
        )
