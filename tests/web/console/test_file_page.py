"""The page of a file: previews that run no script, renewal, and bounded lists."""

from collections.abc import Callable

import pytest

from shared.files import retention
from shared.files.errors import RetentionRenewalNotSupported
from shared.identity.access.roles import Role
from tests.support.data.identity import Person
from tests.support.data.media_samples import PNG
from tests.support.files.file_requests import Asker
from tests.support.web.browser import Browser
from tests.support.web.web_process import Front
from tests.web.console.conftest import with_organization
from tests.web.files.conftest import agent_of
from tests.web.media.conftest import sql
from web.console.previews import MAXIMUM_TEXT_BYTES

LATER = "2100-01-01T00:00:00Z"
ATTACK = "<script>alert(1)</script>\u202e\x1b[31m"


@pytest.fixture
def agent(front: Front) -> Asker:
    return agent_of(front, front.identity.deployment(front.identity.organization().id))


@pytest.fixture
def owner(front: Front, agent: Asker, signed_in: Callable[[Person], Browser]) -> Browser:
    assert agent.organization_id is not None
    person = front.identity.person(agent.organization_id, Role.WORKSPACE_OWNER)
    return with_organization(agent.organization_id, signed_in(person))


def store(agent: Asker, *arguments: object, **options: object) -> str:
    answer = agent.upload(*arguments, **options)  # type: ignore[arg-type]
    assert answer.status_code == 201, answer.text
    return f"/console/files/{(answer.json or {})['id']}"


def test_a_text_is_shown_as_text_and_only_its_beginning(agent: Asker, owner: Browser) -> None:
    page = owner.get(store(agent, ATTACK.encode() + b"\xff")).text
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "\x1b" not in page
    assert "\u202e" not in page
    long = owner.get(store(agent, b"w" * (MAXIMUM_TEXT_BYTES + 1))).text
    assert "w" * MAXIMUM_TEXT_BYTES in long
    assert "w" * (MAXIMUM_TEXT_BYTES + 1) not in long
    assert "Only the beginning is shown." in long


def test_a_picture_comes_from_its_own_address_and_is_never_a_page(agent: Asker, owner: Browser) -> None:
    page = store(agent, PNG.content, file_name="a.png", media_type="image/png")
    (address,) = [at.split('"')[0] for at in owner.get(page).text.split('<img src="')[1:]]
    assert address.startswith(f"{page}/content?versionId=")
    head = owner.ask("HEAD", address)
    assert head.status == 200
    assert head.headers["Content-Security-Policy"].startswith("sandbox; default-src 'none'")
    assert head.headers["X-Content-Type-Options"] == "nosniff"
    assert head.headers["Content-Disposition"].startswith("attachment")


@pytest.mark.parametrize("media_type", ["image/svg+xml", "application/pdf", "application/octet-stream"])
def test_what_might_run_has_no_preview(agent: Asker, owner: Browser, media_type: str) -> None:
    page = owner.get(store(agent, b"<svg onload=alert(1)>", file_name="a", media_type=media_type)).text
    assert 'class="preview"' not in page
    assert "<svg onload" not in page


def test_renewal_form_is_absent_if_the_file_cannot_be_renewed(
    agent: Asker, owner: Browser, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = store(agent, retentionExpiresAt=LATER)
    form = f'action="{page}/retention"'
    assert form in owner.get(page).text
    monkeypatch.setattr(retention, "_find_renewal_refusal", lambda _: RetentionRenewalNotSupported())
    assert form not in owner.get(page).text


def test_a_retention_is_renewed_and_never_shortened(agent: Asker, owner: Browser) -> None:
    page = store(agent, retentionExpiresAt=LATER)
    act = f"{page}/retention"
    assert owner.submit(page, act).status == 422
    assert owner.submit(page, act, until="soon").status == 422
    assert owner.submit(page, act, until="2099-01-01").status == 409
    assert "2100" in owner.get(page).text
    assert owner.submit(page, act, until="2101-01-01").location == page
    assert "2101" in owner.get(page).text
    assert owner.submit(page, act, **{"for": "ever"}).status == 303
    kept = owner.get(page).text
    assert "Kept until it is deleted" in kept
    assert "/retention" not in kept


def test_of_many_versions_and_references_the_page_has_some(
    front: Front, agent: Asker, owner: Browser
) -> None:
    page = store(agent)
    file_id = page.rpartition("/")[2]
    sql(
        front,
        "INSERT INTO file_references (file_id, kind, reference_id)"
        " SELECT CAST(:id AS uuid), 'Resource', 'r-' || n FROM generate_series(1, 30) n",
        id=file_id,
    )
    shown = owner.get(page).text
    assert shown.count("<bdi>r-") == 20
    assert "These are the first 20." in shown
