"""Rate limits of a credential, and of an address with wrong credentials: 429, `Retry-After` and `RateLimit`."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import redis
from sqlalchemy import text

from deploy.embedded.valkey import EmbeddedValkey
from shared.messaging.valkey import connect_valkey
from tests.support.files.file_requests import refuse
from tests.support.web.web_process import Front, open_front
from tests.web.files.conftest import agent_of
from web.dependencies.rate_limits import BATCHES_IN_LIMIT, RateLimiter

LIMIT, GUESSES = 5, 3


@pytest.fixture
def limited(database_url: str, valkey_server: EmbeddedValkey, tmp_path: Path) -> Iterator[Front]:
    """A web process with low limits, whose counters begin at zero."""
    with open_front(
        database_url,
        valkey_server.url,
        tmp_path,
        rate_limit_per_minute=LIMIT,
        failed_logins_per_minute=GUESSES,
    ) as front:
        front.services.valkey.flushdb()
        yield front
        front.services.valkey.flushdb()


def test_a_credential_is_told_what_is_left_and_then_to_wait(limited: Front) -> None:
    authorization = limited.identity.authorization(
        limited.identity.deployment(limited.identity.organization().id)
    )
    answers = [limited.get("/files", authorization) for _ in range(LIMIT + 1)]
    assert [answer.status_code for answer in answers] == [200] * LIMIT + [429]
    assert answers[0].headers["RateLimit-Policy"] == f'"default";q={LIMIT};w=60'
    # `r` is what remains after the request itself.
    left = [answer.headers["RateLimit"].partition("r=")[2].partition(";")[0] for answer in answers[:LIMIT]]
    assert left == ["4", "3", "2", "1", "0"]
    problem = refuse(answers[-1], 429, "rate_limited")
    assert problem["limit"] == LIMIT
    assert int(answers[-1].headers["Retry-After"]) == 60 // LIMIT
    assert answers[-1].headers["RateLimit"].startswith('"default";r=0;')


def test_a_credential_is_counted_however_its_header_is_written(limited: Front) -> None:
    deployment = limited.identity.deployment(limited.identity.organization().id)
    token = limited.identity.access_token(deployment)
    # A scheme in other letters or with more spaces is the same credential, so it cannot have a limit of its own.
    spellings = [
        f"Bearer {token}",
        f"bearer {token}",
        f"BEARER  {token}",
        f"bEaReR   {token}",
        f"Bearer {token} ",
    ]
    assert [limited.get("/files", spelling).status_code for spelling in spellings] == [200] * LIMIT
    assert limited.get("/files", f"beareR {token}").status_code == 429


def test_a_new_token_is_no_new_credential(limited: Front) -> None:
    deployment = limited.identity.deployment(limited.identity.organization().id)
    statuses = [
        limited.get("/files", limited.identity.authorization(deployment)).status_code
        for _ in range(LIMIT + 1)
    ]
    assert statuses == [200] * LIMIT + [429]


def test_one_credential_does_not_use_up_anothers(limited: Front) -> None:
    organization = limited.identity.organization()
    first, second = (limited.identity.deployment(organization.id, name) for name in ("first", "second"))
    busy = limited.identity.authorization(first)
    while limited.get("/files", busy).status_code == 200:
        pass
    assert limited.get("/files", limited.identity.authorization(second)).status_code == 200


def test_guessing_credentials_is_slowed_down_by_address(limited: Front) -> None:
    answers = [limited.get("/files", f"Bearer wrong-{number}") for number in range(GUESSES + 1)]
    assert [answer.status_code for answer in answers] == [401] * GUESSES + [429]
    # Without a credential nothing is guessed, so this counts against no limit.
    assert limited.get("/files").status_code == 401
    deployment = limited.identity.deployment(limited.identity.organization().id)
    assert limited.get("/files", limited.identity.authorization(deployment)).status_code == 200


def test_guessing_links_is_slowed_down_too(limited: Front) -> None:
    deployment = limited.identity.deployment(limited.identity.organization().id)
    uploaded = agent_of(limited, deployment)
    file = uploaded.upload().json
    assert file is not None
    link = (uploaded.grant(file).json or {})["url"]
    statuses = [
        uploaded.follow(f"/files/{file['id']}/content?grant=svg_{number}").status_code
        for number in range(GUESSES + 1)
    ]
    assert statuses == [404] * GUESSES + [429]
    assert uploaded.follow(link).status_code == 200


def test_without_valkey_requests_pass_unlimited(
    database_url: str, tmp_path: Path, valkey_server: EmbeddedValkey
) -> None:
    with open_front(
        database_url, "redis://127.0.0.1:1/0", tmp_path, rate_limit_per_minute=1, failed_logins_per_minute=1
    ) as front:
        deployment = front.identity.deployment(front.identity.organization().id)
        authorization = front.identity.authorization(deployment)
        answers = [front.get("/files", authorization) for _ in range(3)]
        assert [answer.status_code for answer in answers] == [200] * 3
        assert "RateLimit" not in answers[0].headers


def test_a_key_that_has_expired_is_no_guess_and_always_hears_so(limited: Front) -> None:
    identity = limited.identity
    person = identity.person(identity.organization().id)
    with limited.services.database.autocommit() as session:
        statement = "UPDATE api_keys SET created_at = now() - interval '2 days', expires_at = now() - interval '1 day'"
        session.execute(text(f"{statement} WHERE user_id = :id"), {"id": person.user_id})
    answers = [limited.get("/files", person.authorization) for _ in range(GUESSES + 2)]
    assert {answer.status_code for answer in answers} == {401}
    assert limited.get("/files", "Bearer wrong").status_code == 401


def test_what_a_process_took_in_advance_is_used_up(valkey_server: EmbeddedValkey) -> None:
    limit, asked = 2 * BATCHES_IN_LIMIT, 10
    with connect_valkey(valkey_server.url, max_connections=1) as valkey:
        limiter = RateLimiter(valkey)
        before = scripts_run(valkey)
        taken = [limiter.take("in advance", limit) for _ in range(asked)]
        assert all(allowance is not None and allowance.allowed for allowance in taken)
        assert scripts_run(valkey) - before >= asked // 2
        valkey.delete("rate:in advance")


def scripts_run(valkey: redis.Redis) -> int:
    said: Any = valkey.info("commandstats")
    return int(said.get("cmdstat_evalsha", {"calls": 0})["calls"])
