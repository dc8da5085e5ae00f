"""The pages and their actions, in an empty organization and in one with hostile names, by role."""

import re
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from html import unescape
from uuid import UUID

import pytest
from sqlalchemy import event, func, select, update

from shared.credits.amounts import MICRO
from shared.credits.holds import Attribution
from shared.credits.tables import budgets
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.permissions import Permission
from shared.identity.access.roles import ROLE_PERMISSIONS, Role
from shared.identity.bootstrap import FIRST_OWNER_EMAIL
from shared.identity.console_tables import console_sessions
from shared.identity.directory.organizations import rename_organization
from shared.identity.directory.users import create_operator
from shared.identity.tables import api_keys, identities, role_bindings
from shared.operations.host_status import HostState, SweepState
from tests.shared.credits.calls import Calls
from tests.support.data.identity import Person
from tests.support.web.browser import Browser
from tests.support.web.web_process import Front
from tests.web.console.conftest import with_organization
from web.console.navigation import Page
from web.console.pages import operations
from web.console.routes import PAGES

SignedIn = Callable[[Person], Browser]
MARKUP = "<img src=x onerror=alert(1)>\"'&"
HEBREW = "שלום <b>עולם</b>"
LONG = "w" * 200
HOSTILE = (MARKUP, HEBREW, LONG)
STATEMENTS = 12
DECLARED_PAGES = [page for routes in PAGES for page in routes.pages]
SHOWN = sorted(
    page.path
    for page in DECLARED_PAGES
    if "<" not in page.path and page.permission is not Permission.INSTALLATION_OPERATE
)


@dataclass(frozen=True, kw_only=True)
class Tenant:
    """An organization with one resource of each kind, whose names contain markup."""

    id: UUID
    owner: Person
    member: Person
    key_id: UUID
    identity_id: UUID


@pytest.fixture(scope="module")
def tenant(front: Front) -> Tenant:
    make = front.identity
    organization_id = make.organization("Acme").id
    owner = make.person(organization_id, Role.WORKSPACE_OWNER, bound=True)
    member = make.person(organization_id)
    for name in HOSTILE:
        made = make.principal(organization_id, name)
    calls = Calls(front.services.database, organization_id)
    calls.top_up(1000 * MICRO, MARKUP)
    assert owner.api_key_id is not None
    who = Attribution(user_id=owner.user_id, api_key_id=owner.api_key_id)
    for tokens in range(3):
        calls.charge(1_250_000 + tokens, attribution=who, model=f"acme/{MARKUP}")
    calls.charge(7, attribution=Attribution(identity_id=made.id, principal_id=made.id), model=LONG)
    calls.hold(12_345_678, attribution=who)
    with front.services.database.transaction() as session:
        session.execute(update(api_keys).where(api_keys.c.id == owner.api_key_id).values(name=MARKUP))
        rename_organization(session, actor=OPERATOR, organization_id=organization_id, name=MARKUP)
    return Tenant(
        id=organization_id,
        owner=owner,
        member=member,
        key_id=owner.api_key_id,
        identity_id=made.id,
    )


@pytest.fixture
def owner(tenant: Tenant, front: Front, signed_in: SignedIn) -> Browser:
    """The owner's browser, in the organization of `tenant`."""
    return with_organization(tenant.id, signed_in(tenant.owner))


@pytest.fixture
def newcomer(front: Front, signed_in: SignedIn) -> Browser:
    """The browser of the owner of an empty organization."""
    organization_id = front.identity.organization("Empty").id
    person = front.identity.person(organization_id, Role.WORKSPACE_OWNER)
    return with_organization(organization_id, signed_in(person))


@pytest.mark.parametrize("path", SHOWN)
def test_a_page_of_an_empty_organization_says_what_it_would_show(newcomer: Browser, path: str) -> None:
    answer = newcomer.get(path)
    assert answer.status == 200, answer.text[:2000]
    assert "<h1>" in answer.text


@pytest.mark.parametrize("path", SHOWN)
def test_a_page_writes_names_and_runs_nothing_of_them(owner: Browser, path: str) -> None:
    answer = owner.get(path)
    assert answer.status == 200, answer.text[:2000]
    assert "<img" not in answer.text
    assert "<b>עולם" not in answer.text
    assert not re.findall(r"<style|\sstyle=|\son[a-z]+=[\"']", answer.text)
    assert [at for at in re.findall(r"<script[^>]*>", answer.text) if 'src="/static/' not in at] == []


def test_names_stand_where_they_belong(owner: Browser) -> None:
    escaped = "&lt;img src=x onerror=alert(1)&gt;"
    for path in (
        "/console",
        "/console/keys",
        "/console/activity",
        "/console/people/identities",
        "/console/ledger",
    ):
        assert escaped in owner.get(path).text, path
    assert LONG in owner.get("/console/people/identities").text


@pytest.mark.parametrize("path", SHOWN)
def test_a_page_costs_few_statements(front: Front, owner: Browser, path: str) -> None:
    with counted(front) as seen:
        assert owner.get(path).status == 200
    assert len(seen) <= STATEMENTS, seen


class counted:  # noqa: N801 (used as a function)
    """Collect the SQL statements of requests, in any thread."""

    def __init__(self, front: Front) -> None:
        self.engine = front.services.database.engine
        self.seen: list[str] = []

    def _note(self, _connection: object, _cursor: object, statement: str, *_: object) -> None:
        # The update of a session's last use happens once a minute at most, so it is no cost of a page.
        if "last_used_at" not in statement or statement.startswith("SELECT"):
            self.seen.append(statement)

    def __enter__(self) -> list[str]:
        event.listen(self.engine, "before_cursor_execute", self._note)
        return self.seen

    def __exit__(self, *_: object) -> None:
        event.remove(self.engine, "before_cursor_execute", self._note)


@pytest.mark.parametrize("path", SHOWN)
def test_a_page_has_its_declared_title(newcomer: Browser, path: str) -> None:
    (title,) = [page.title for page in DECLARED_PAGES if page.path == path]
    assert f"<title>{title} · Empty · Quartermaster</title>" in unescape(newcomer.get(path).text)


@pytest.mark.parametrize("page", DECLARED_PAGES, ids=lambda page: page.path)
def test_a_page_refuses_a_member_without_its_permission(
    tenant: Tenant, signed_in: SignedIn, page: Page
) -> None:
    browser = with_organization(tenant.id, signed_in(tenant.member))
    path = re.sub(r"<id:\w+>", str(UUID(int=0)), page.path).replace("<month:month>", "2026-01")
    held = ROLE_PERMISSIONS[Role.MEMBER]
    refused = page.permission is not None and page.permission not in held
    assert (browser.get(path).status == 403) == refused


def test_a_member_sees_what_rest_shows_them(tenant: Tenant, signed_in: SignedIn) -> None:
    browser = with_organization(tenant.id, signed_in(tenant.member))
    overview = browser.get("/console").text
    assert "credit.read" in overview
    assert "acme/" not in overview


def test_a_page_in_no_organization_leads_to_the_choice(front: Front, signed_in: SignedIn) -> None:
    with front.services.database.transaction() as session:
        user = create_operator(session, actor=OPERATOR, email=f"second-{FIRST_OWNER_EMAIL}")
    browser = signed_in(Person(user_id=user.id, email=user.email, api_key=""))
    answer = browser.get("/console")
    assert (answer.status, answer.location) == (303, "/console/organizations")


def test_operations_are_shown_to_operators_alone(front: Front, owner: Browser, signed_in: SignedIn) -> None:
    assert owner.get("/console/operations").status == 403
    assert "/console/operations" not in owner.get("/console").text
    page = signed_in(front.identity.operator()).get("/console/operations")
    assert page.status == 200
    assert 'href="/console/operations"' in page.text


def test_operations_page_marks_an_overdue_sweep(
    front: Front, signed_in: SignedIn, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_ago = SweepState(
        kind="files.expire",
        every_seconds=5,
        succeeded_at=datetime.now(UTC) - timedelta(days=1),
        failures=2,
    )
    elsewhere = SweepState(kind="files.collect", every_seconds=5, succeeded_at=None, failures=0)
    state = HostState(processes={"web": 1}, sweeps=(long_ago, elsewhere))
    monkeypatch.setattr(operations, "read_host_state", lambda _: state)
    page = signed_in(front.identity.operator()).get("/console/operations")
    assert page.status == 200
    overdue, other = (page.text.split(f"<code>{each.kind}</code>")[1] for each in (long_ago, elsewhere))
    assert "late" in overdue.split("</tr>")[0]
    assert "late" not in other.split("</tr>")[0]


def test_a_part_that_a_script_asks_for_is_alone(owner: Browser) -> None:
    part = owner.get("/console", {"HX-Request": "true"})
    assert part.text.startswith('<dl class="figures"')
    assert "HX-Request" in part.headers["Vary"]


def test_a_key_is_shown_once_works_and_ends_when_it_is_revoked(
    front: Front, tenant: Tenant, owner: Browser
) -> None:
    made = owner.submit("/console/keys", "/console/keys", name="laptop", limit="2.5", period="week")
    assert made.status == 200, made.text
    (secret,) = re.findall(r"svk_\w+", made.text)
    assert front.get("/v1/credits", f"Bearer {secret}").status_code == 200
    assert secret not in owner.get("/console/keys").text
    with front.services.database.transaction() as session:
        key_id = session.execute(select(api_keys.c.id).where(api_keys.c.name == "laptop")).scalar_one()
        budget = session.execute(select(budgets).where(budgets.c.subject_id == key_id)).one()
    assert (budget.amount, budget.period) == (2_500_000, "week")
    page = f"/console/keys/{key_id}/revoke"
    assert "laptop" in owner.get(page).text
    assert owner.submit(page, page, name="desktop").status == 422
    assert front.get("/v1/credits", f"Bearer {secret}").status_code == 200
    assert owner.submit(page, page, name="laptop").location == "/console/keys"
    assert front.get("/v1/credits", f"Bearer {secret}").status_code == 401


def test_a_budget_is_created_changed_and_deleted(front: Front, tenant: Tenant, owner: Browser) -> None:
    subject = f"api_key:{tenant.key_id}"
    for fields in ({"subject": "planet:1"}, {"amount": "much"}, {"period": "minute"}, {"subject": "user:1"}):
        wrong = {"subject": subject, "amount": "5", "period": "month", **fields}
        assert owner.submit("/console/keys", "/console/budgets", **wrong).status == 422
    made = owner.submit("/console/keys", "/console/budgets", subject=subject, amount="5", period="month")
    assert made.status == 303, made.text
    with front.services.database.transaction() as session:
        found = session.execute(select(budgets).where(budgets.c.subject_id == tenant.key_id)).one()
    page = f"/console/budgets/{found.id}"
    assert owner.submit(page, page, amount="7").status == 303
    assert "7.00 credits" in owner.get(page).text
    assert owner.submit(page, f"{page}/delete").status == 303
    assert owner.get(page).status == 404


def test_what_shows_a_secret_or_moves_money_needs_a_fresh_proof(
    front: Front, tenant: Tenant, owner: Browser
) -> None:
    keys = owner.get("/console/keys")
    with front.services.database.transaction() as session:
        session.execute(update(console_sessions).values(stepped_up_at=func.now() - timedelta(minutes=10)))
        before = session.execute(select(func.count()).select_from(api_keys)).scalar_one()
    guarded = [
        *(("/console/keys", {"name": "x"}), (f"/console/keys/{tenant.key_id}/revoke", {"name": MARKUP})),
        *(("/console/spending/suspend", {}), ("/console/budgets", {})),
        *((f"/console/people/{tenant.member.user_id}/remove", {}), ("/console/people/invitations", {})),
    ]
    for path, fields in guarded:
        answer = owner.post(path, {"csrf": keys.token, **fields})
        assert answer.status == 303, path
        assert answer.location.startswith("/console/step-up?next=/console/"), path
    with front.services.database.transaction() as session:
        assert session.execute(select(func.count()).select_from(api_keys)).scalar_one() == before


def test_spending_is_suspended_and_resumed(owner: Browser) -> None:
    page = "/console/ledger"
    assert owner.submit(page, "/console/spending/suspend").location == page
    assert "Spending is suspended" in owner.get("/console").text
    assert owner.submit(page, "/console/spending/resume").location == page
    assert "Spending is suspended" not in owner.get("/console").text


def test_credits_come_from_operators_alone(front: Front, tenant: Tenant, owner: Browser) -> None:
    fields = {"amount": "5", "reference": "invoice-7"}
    assert "operators of this installation" in owner.get("/console/top-up").text
    assert owner.submit("/console/keys", "/console/top-up", **fields).status == 403
    assert "invoice-7" not in owner.get("/console/ledger").text


def test_people_are_invited_given_roles_and_removed(front: Front, tenant: Tenant, owner: Browser) -> None:
    page = "/console/people"
    made = owner.submit(page, f"{page}/invitations", email="ada@example.org", role="Member")
    assert made.status == 200
    assert re.search(r"svi_\w{49}", made.text)
    assert "ada@example.org" in owner.get(page).text
    (revoke,) = re.findall(r"/console/people/invitations/[0-9a-f-]+/revoke", owner.get(page).text)
    assert owner.submit(page, revoke).status == 303
    person = front.identity.person(tenant.id)
    assert owner.submit(page, f"{page}/{person.user_id}/role", role="WorkspaceAdmin").status == 303
    assert owner.submit(page, f"{page}/{person.user_id}/role", role="God").status == 422
    assert owner.submit(page, f"{page}/{person.user_id}/remove").status == 303
    assert person.email not in owner.get(page).text


def test_identities_and_bindings_are_made_and_taken_back(
    front: Front, tenant: Tenant, owner: Browser
) -> None:
    page = "/console/people/identities"
    assert owner.submit(page, page, name="Mailbox").status == 303
    with front.services.database.transaction() as session:
        made = session.execute(select(identities.c.id).where(identities.c.name == "Mailbox")).scalar_one()
    assert owner.submit(page, f"{page}/{made}/disable").status == 303
    assert owner.submit(page, f"{page}/{made}/enable").status == 303
    fields = {"subject": str(made), "role": "ProjectAgent", "scope": str(tenant.identity_id)}
    assert owner.submit(page, "/console/people/bindings", **fields).status == 303
    with front.services.database.transaction() as session:
        bound = select(role_bindings.c.id).where(role_bindings.c.scope_id == tenant.identity_id)
        bound = bound.where(role_bindings.c.subject_identity_id == made)
        binding_id = session.execute(bound).scalar_one()
    assert owner.submit(page, f"/console/people/bindings/{binding_id}/unbind").status == 303
    assert "identity.created" in owner.get("/console/people/audit").text


def test_activity_is_filtered_paged_and_a_file(tenant: Tenant, owner: Browser) -> None:
    assert owner.get("/console/activity?status=completed&since=24h&model=").status == 200
    assert "Nothing matches" in owner.get("/console/activity?model=none").text
    assert LONG not in owner.get(f"/console/activity?key={tenant.key_id}").text.split("<table")[1]
    for wrong in ("status=great", "key=1", "principal=x"):
        assert owner.get(f"/console/activity?{wrong}").status == 422
    file = owner.get("/console/activity.csv")
    assert file.headers["Content-Type"].startswith("text/csv")
    assert len(file.text.splitlines()) == 5


def test_the_ledger_adds_up_and_has_its_statement(owner: Browser) -> None:
    page = owner.get("/console/ledger").text
    assert "adds up" in page
    months = re.findall(r'href="(/console/ledger/\d{4}-\d\d)"', page)
    assert months  # two, where one has ended since the house was made
    for month in months:
        assert "Closing balance" in owner.get(month).text
    assert "12.34<span" in owner.get("/console/ledger/holds").text
