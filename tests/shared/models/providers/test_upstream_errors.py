"""Error responses of upstreams: their meaning, whether they may have cost something, and the text for callers."""

import logging
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.models.providers.errors import (
    ProviderError,
    ProviderOverloaded,
    ProviderTimeout,
    UpstreamRefused,
    refusal,
    retry_after_seconds,
)
from shared.models.providers.routing import Router
from shared.observability.telemetry import JsonFormatter
from tests.shared.models.providers.calls import events_of, model
from tests.support.models.upstream_scripts import Script
from tests.support.models.upstreams import FakeUpstream

MEANINGS = [
    (301, ProviderError, False),
    (307, ProviderError, False),
    (400, UpstreamRefused, False),
    (401, ProviderError, False),
    (402, ProviderError, False),
    (403, ProviderError, False),
    (404, ProviderError, False),
    (408, ProviderError, False),
    (413, UpstreamRefused, False),
    (422, UpstreamRefused, False),
    (429, ProviderOverloaded, False),
    (500, ProviderError, True),
    (502, ProviderError, True),
    (503, ProviderOverloaded, False),
    (504, ProviderTimeout, True),
    (529, ProviderOverloaded, False),
    (418, ProviderError, True),
]


@pytest.mark.parametrize(("status", "meaning", "may_have_cost"), MEANINGS)
def test_a_status_has_one_meaning(
    router: Router, upstream: FakeUpstream, status: int, meaning: type[ProviderError], may_have_cost: bool
) -> None:
    upstream.script = Script(status=status, body="no", headers={"Location": f"{upstream.base_url}/elsewhere"})
    with pytest.raises(ProviderError) as raised:
        events_of(router, model(upstream.base_url, retries=0))
    assert type(raised.value) is meaning
    assert raised.value.may_have_cost is may_have_cost
    assert raised.value.upstream_status == status
    assert len(upstream.received) == 1  # redirects are not followed


@pytest.mark.parametrize(
    ("body", "message", "code"),
    [
        ('{"error": {"message": "too long", "type": "t", "param": "p", "code": "c"}}', "too long", "c"),
        ('{"error": {"message": "bad", "code": 400}}', "bad", "400"),
        ('{"error": "flat"}', "flat", None),
        ('{"object": "error", "message": "vllm", "code": 400}', "vllm", "400"),
        ('{"detail": "fastapi"}', "fastapi", None),
        ('[{"error": {"message": "gemini"}}]', "gemini", None),
        ("<html>", "The provider of this model refused the request.", None),
        ("", "The provider of this model refused the request.", None),
        (
            '{"error": {"message": ["odd"], "code": {}}}',
            "The provider of this model refused the request.",
            None,
        ),
    ],
)
def test_upstreams_request_error_is_passed_on(
    router: Router, upstream: FakeUpstream, body: str, message: str, code: str | None
) -> None:
    upstream.script = Script(status=400, body=body, content_type="application/json")
    with pytest.raises(UpstreamRefused) as raised:
        events_of(router, model(upstream.base_url))
    assert raised.value.error["message"] == message
    assert raised.value.error["code"] == code
    assert message == "The provider of this model refused the request." or message not in str(raised.value)


def test_an_account_without_quota_is_the_operators_affair() -> None:
    body = b'{"error": {"message": "You exceeded your quota", "code": "insufficient_quota"}}'
    error = refusal(429, {}, body)
    assert type(error) is ProviderError
    assert not error.is_worth_repeating


@settings(deadline=None)
@given(st.integers(100, 599), st.binary(max_size=300))
def test_no_error_body_breaks_the_parser(status: int, body: bytes) -> None:
    assert isinstance(refusal(status, {}, body), ProviderError)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "7"}, 7),
        ({"retry-after": "0"}, 0),
        ({"retry-after": "1.2"}, 2),
        ({"retry-after": "999999"}, 3600),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after-ms": "1500", "retry-after": "9"}, 2),
        ({"retry-after": "Wed, 21 Oct 2015 07:28:00 GMT"}, 0),
    ],
)
def test_retry_after_is_read_in_all_its_forms(headers: dict[str, str], seconds: int | None) -> None:
    assert retry_after_seconds(headers) == seconds


def test_retry_after_may_be_a_moment() -> None:
    moment = format_datetime(datetime.now(UTC) + timedelta(seconds=60), usegmt=True)
    assert retry_after_seconds({"retry-after": moment}) in range(58, 61)


def test_no_secret_reaches_a_log_or_an_error(
    router: Router,
    upstream: FakeUpstream,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("PROVIDER_KEY", "canary-key")
    monkeypatch.setenv("PROVIDER_EXTRA", "canary-extra")
    keys = 'api_key_env = "PROVIDER_KEY"\nheader_envs = { X-Extra = "PROVIDER_EXTRA" }'
    upstream.script = Script(
        status=401, body='{"error": {"message": "wrong key canary-key for canary-prompt"}}'
    )
    with caplog.at_level(logging.DEBUG), pytest.raises(ProviderError) as raised:
        events_of(router, model(upstream.base_url, provider_keys=keys), "canary-prompt")
    received = upstream.received[0].headers
    assert received["authorization"] == "Bearer canary-key"
    assert received["x-extra"] == "canary-extra"
    lines = [JsonFormatter().format(record) for record in caplog.records]
    assert lines
    assert "canary" not in "\n".join(lines) + repr(raised.value) + raised.value.detail


def test_provider_without_its_key_is_never_called(router: Router, upstream: FakeUpstream) -> None:
    with pytest.raises(ProviderError, match="not configured") as raised:
        events_of(router, model(upstream.base_url, provider_keys='api_key_env = "NO_SUCH_VARIABLE_HERE"'))
    assert not raised.value.may_have_cost
    assert not upstream.received


def test_the_surroundings_do_not_touch_a_call(
    router: Router,
    upstream: FakeUpstream,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path_factory: pytest.TempPathFactory,
) -> None:
    netrc = tmp_path_factory.mktemp("home") / "netrc"
    netrc.write_text("machine 127.0.0.1 login someone password canary\n")
    monkeypatch.setenv("NETRC", str(netrc))
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:1")
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    upstream.script = Script(headers={"Set-Cookie": "session=1"})
    entry = model(upstream.base_url, provider_keys='headers = { X-Title = "Quartermaster" }')
    for _ in range(2):
        events_of(router, entry)
    for received in upstream.received:
        assert "authorization" not in received.headers
        assert "cookie" not in received.headers
        assert received.headers["x-title"] == "Quartermaster"
