"""Verification of tokens: the service's are accepted, and all others rejected."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

from quartermaster.context import ReportedCaller
from quartermaster.verification import LEEWAY_SECONDS, VerificationFailed, read_deployment
from sdk.tests.agents.signer import ISSUER, Signer

NOW = int(time.time())


@pytest.fixture(scope="module")
def signer() -> Signer:
    return Signer()


def test_an_attribution_becomes_a_context(signer: Signer) -> None:
    principal, daemon, payer, distribution = (uuid4() for _ in range(4))
    value = signer.attribution(
        sub=str(principal),
        act={"sub": str(daemon)},
        payer=str(payer),
        distribution_id=str(distribution),
        rctx={"channel": "slack", "reported_caller": {"id": "U123", "display": "Ada"}},
    )
    context = signer.verifier().verify_attribution(value)
    assert (context.agent_principal, context.execution_principal, context.payer) == (principal, daemon, payer)
    assert (context.distribution_id, context.transaction_id) == (distribution, "transaction-1")
    assert (context.deployment_id, context.organization) == (
        signer.deployment.id,
        signer.deployment.organization_id,
    )
    assert context.reported_caller == ReportedCaller(id="U123", display="Ada")
    assert context.attribution == value
    assert value not in repr(context)


def test_an_attribution_of_nobodys_message_has_no_caller(signer: Signer) -> None:
    context = signer.verifier().verify_attribution(signer.attribution())
    assert context.reported_caller is None
    assert context.distribution_id is None


@pytest.mark.parametrize(
    "changes",
    [
        {"iss": "https://elsewhere.example"},
        {"aud": ISSUER},
        {"aud": [f"{ISSUER}/usage-attribution"]},
        {"scope": None},
        {"deployment_id": str(uuid4())},
        {"exp": NOW - LEEWAY_SECONDS - 5},
        {"exp": None},
        {"exp": 1e99},
        {"iat": NOW + 3600},
        {"sub": "somebody"},
        {"act": None},
        {"payer": None},
        {"txn": ""},
        {"rctx": {"reported_caller": {"display": "Ada"}}},
    ],
    ids=",".join,  # names of claims: their values differ from process to process
)
def test_an_attribution_that_says_anything_else_is_refused(signer: Signer, changes: dict[str, Any]) -> None:
    with pytest.raises(VerificationFailed):
        signer.verifier().verify_attribution(signer.attribution(**changes))


def test_clocks_may_differ_by_a_minute(signer: Signer) -> None:
    verifier = signer.verifier(now=lambda: NOW)
    verifier.verify_request_token(signer.request_token(iat=NOW - 300, exp=NOW - LEEWAY_SECONDS + 1))
    verifier.verify_request_token(signer.request_token(iat=NOW + LEEWAY_SECONDS, exp=NOW + 300))
    for iat, exp in ((NOW - 300, NOW - LEEWAY_SECONDS), (NOW + LEEWAY_SECONDS + 1, NOW + 300)):
        with pytest.raises(VerificationFailed):
            verifier.verify_request_token(signer.request_token(iat=iat, exp=exp))


@pytest.mark.parametrize(
    "changes",
    [
        {"aud": "0d9c1f6e-3f1b-4c55-9a5e-2f2f0a6c7b10"},
        {"sub": "somebody"},
        {"iss": "https://elsewhere.example"},
    ],
    ids=",".join,  # names of claims: their values differ from process to process
)
def test_a_request_token_for_another_is_refused(signer: Signer, changes: dict[str, Any]) -> None:
    with pytest.raises(VerificationFailed):
        signer.verifier().verify_request_token(signer.request_token(**changes))


def test_no_token_passes_as_one_of_another_type(signer: Signer) -> None:
    verifier = signer.verifier()
    with pytest.raises(VerificationFailed):
        # All claims are those of a request token; only the type in the header differs.
        verifier.verify_request_token(signer.attribution(aud=str(signer.deployment.id), sub="quartermaster"))
    with pytest.raises(VerificationFailed):
        verifier.verify_attribution(signer.request_token())


@pytest.mark.parametrize(
    "header", [{"jku": "https://elsewhere.example"}, {"typ": "JWT"}, {"cty": "x"}], ids=",".join
)
def test_a_header_with_anything_more_is_refused(signer: Signer, header: dict[str, Any]) -> None:
    with pytest.raises(VerificationFailed):
        signer.verifier().verify_request_token(signer.request_token(header))


def test_another_key_of_the_same_name_does_not_sign(signer: Signer) -> None:
    # The same key id and deployment, but another private key.
    forger = Signer(signer.kid)
    forger.deployment = signer.deployment
    with pytest.raises(VerificationFailed):
        signer.verifier().verify_request_token(forger.request_token())


def test_another_algorithm_is_refused(signer: Signer) -> None:
    header = {"alg": "HS256", "typ": "agent-request+jwt", "kid": signer.kid}
    claims = {
        "iss": ISSUER,
        "aud": str(signer.deployment.id),
        "sub": "quartermaster",
        "iat": NOW,
        "exp": NOW + 300,
    }
    # A verifier that takes the algorithm from the header could use the public key as an HMAC secret.
    token = jwt.encode(header, claims, OctKey.generate_key(256), ["HS256"])
    with pytest.raises(VerificationFailed):
        signer.verifier().verify_request_token(token)


@pytest.mark.parametrize(
    "value", ["", ".", "a.b.c", "e30.e30.", "é.é.é", "a" * 5000, "e30.e30.e30", "W10.e30.e30"]
)
def test_what_is_no_token_is_refused(signer: Signer, value: str) -> None:
    verifier = signer.verifier()
    with pytest.raises(VerificationFailed):
        verifier.verify_request_token(value)
    with pytest.raises(VerificationFailed):
        verifier.verify_attribution(value)
    assert verifier.is_ready(value)


def test_the_deployment_is_read_from_its_own_access_token() -> None:
    key = ECKey.generate_key("P-256")
    deployment, organization = uuid4(), uuid4()
    claims = {"deployment_id": str(deployment), "organization_id": str(organization)}
    found = read_deployment(jwt.encode({"alg": "ES256"}, claims, key, ["ES256"]))
    assert (found.id, found.organization_id) == (deployment, organization)


@pytest.mark.parametrize("value", ["svk_1234", "a.b.c", "e30.e30.e30", "e30.W10.e30"])
def test_what_is_no_access_token_of_a_deployment_is_said_plainly(value: str) -> None:
    with pytest.raises(VerificationFailed):
        read_deployment(value)
