"""The credential of a call decides which organization pays for it, and for whom it is recorded."""

from uuid import UUID

import openai

from tests.clients.conftest import connect
from tests.support.agents.rest_clients import exchange_token
from tests.support.data.identity import IdentityFactory
from tests.support.models.model_service import ModelService

NOBODY: dict[str, str | None] = dict.fromkeys(
    ("user_id", "identity_id", "principal_id", "deployment_id", "api_key_id", "distribution_id")
)


def attribution_of(service: ModelService, completion_id: str) -> dict[str, str | None]:
    record = service.wait_for_record(UUID(completion_id.partition("-")[2] or completion_id.partition("_")[2]))
    return {name: record[name] and str(record[name]) for name in NOBODY}


def chat(client: openai.OpenAI) -> str:
    return client.chat.completions.create(
        model="scripted/echo", messages=[{"role": "user", "content": "hello"}]
    ).id


def test_call_with_a_key_is_recorded_for_user_and_key(service: ModelService) -> None:
    person = service.identity.person(service.organization_id)
    with connect(service, person.api_key) as client:
        assert attribution_of(service, chat(client)) == {
            **NOBODY,
            "user_id": str(person.user_id),
            "api_key_id": str(person.api_key_id),
        }


def test_call_with_a_deployment_token_is_recorded_for_its_daemon(service: ModelService) -> None:
    token = exchange_token(service.front.url, service.credentials)
    deployment = service.credentials["deployment"]
    with connect(service, token) as client:
        made = client.responses.create(model="scripted/echo", input="hello", store=False)
    found = attribution_of(service, made.id)
    assert found["deployment_id"] == deployment["id"]
    assert found["identity_id"] is not None
    assert (found["user_id"], found["principal_id"], found["api_key_id"]) == (None, None, None)


def test_routed_call_is_recorded_for_receiving_principal_and_distribution(service: ModelService) -> None:
    make: IdentityFactory = service.identity
    made = make.deployment(service.organization_id, "routed")
    principal = make.principal(service.organization_id, "routed")
    distribution = make.distribution(
        service.organization_id, principal_id=principal.id, deployment_id=made.deployment.id
    )
    headers = {"Service-Usage-Attribution": make.attribution(distribution)}
    with connect(service, make.access_token(made), default_headers=headers) as client:
        assert attribution_of(service, chat(client)) == {
            **NOBODY,
            "identity_id": str(made.deployment.daemon_identity_id),
            "principal_id": str(principal.id),
            "deployment_id": str(made.deployment.id),
            "distribution_id": str(distribution.distribution.id),
        }


def test_reports_show_the_call_by_everyone_responsible(service: ModelService) -> None:
    person = service.identity.person(service.organization_id)
    with connect(service, person.api_key) as client:
        chat(client)
    with connect(service) as owner:
        report = owner.get("/usage?window=24h&group_by=user", cast_to=object)
        credits_left = owner.get("/credits", cast_to=object)
    assert isinstance(report, dict)
    assert isinstance(credits_left, dict)
    mine = next(row for row in report["data"] if row["key"] == str(person.user_id))
    assert (mine["invocations"], mine["prompt_tokens"], mine["completion_tokens"]) == (1, 1, 3)
    assert mine["cost"] == "0.000007"
    assert credits_left["policy"] == "active"


def test_all_books_agree_in_the_end(service: ModelService) -> None:
    service.wait_until_settled()
    assert service.disagreements() == []
