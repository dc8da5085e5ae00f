"""Redaction of an upstream's text: no key, account or address of the operators reaches a caller."""

import json

import pytest

from shared.models.dialects.failures import read_failure
from shared.models.disclosure import disclose
from shared.models.providers.errors import UpstreamRefused, refusal

SECRETS = [
    "Incorrect API key provided: sk-proj-abcDEF123456. Find it at your account.",
    "Incorrect API key provided: sk-ab*********************wxyz.",
    "Authorization: Bearer eyJhbGciOiJFUzI1NiJ9.e30.abcdefgh was refused",
    "Bearer 0123456789abcdef is not known",
    'bad header {"api_key": "hunter2hunter2"}',
    "Key AIzaSyA1234567890abcdefghij has no quota",
    "Rate limit reached for org-a1B2c3D4e5F6 on tokens",
    "POST http://10.2.3.4:8000/v1/chat/completions?key=secret failed",
    "cannot reach https://user:password@models.example.com/v1",
    "connection to 10.2.3.4:8000 was refused by vllm-0.models.svc:8000",
    "redis://:hunter2@cache.internal:6379/0 is away",
    "upstream localhost:11434 said no",
]
LEAKS = (
    "abcDEF123456", "wxyz", "eyJ", "0123456789abcdef", "hunter2", "AIza", "a1B2c3D4", "10.2.3.4", "secret",
    "password@", "models.example.com", "vllm-0", "cache.internal", "localhost",
)  # fmt: skip


@pytest.mark.parametrize("text", SECRETS)
def test_nothing_of_the_operators_is_disclosed(text: str) -> None:
    for said in (
        disclose(text),
        _refused({"error": {"message": text}}),
        _refused({"error": {"message": "no", "param": text, "code": text, "type": text}}),
        _refused({"error": text}),
        _refused({"detail": text}),
        _failed({"error": {"message": text}}),
        _failed({"type": "error", "message": text}),
        _failed({"type": "response.failed", "response": {"error": {"message": text}}}),
    ):
        assert not [leak for leak in LEAKS if leak in said], said


@pytest.mark.parametrize(
    "text",
    [
        "This model's maximum context length is 8192 tokens, however you requested 9000.",
        "The key parameter must be a string; keys are case-sensitive.",
        "Invalid value for 'organization': basic authentication is not used here.",
        "messages[0].content: secret recipes are fine, as are version 1.2.3 and 12:30.",
    ],
)
def test_upstreams_error_about_the_request_is_shown(text: str) -> None:
    assert disclose(text) == text
    assert text in _refused({"error": {"message": text}})


def test_long_words_cost_little() -> None:
    assert len(disclose("a." * 1_000_000)) <= 8000


def _refused(body: object) -> str:
    error = refusal(400, {}, json.dumps(body).encode())
    assert isinstance(error, UpstreamRefused)
    return json.dumps(error.error)


def _failed(event: dict[str, object]) -> str:
    failure = read_failure(event)
    assert failure is not None
    return f"{failure.code} {failure.message}"
