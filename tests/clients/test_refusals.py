"""Every refusal becomes the right exception of OpenAI's client, and is not retried."""

import json
from collections.abc import Callable
from typing import Any

import httpx2
import openai
import pytest

from shared.credits.balances import Policy
from shared.credits.policies import set_policy
from shared.identity.access.authorization import OPERATOR
from tests.clients.conftest import connect
from tests.support.data.identity import Person
from tests.support.data.inventory import query
from tests.support.models.model_service import ModelService
from tests.support.models.upstream_scripts import DIRECTIVE

Ask = Callable[[openai.OpenAI, str], object]
CREDITS = 1_000_000


def chat(client: openai.OpenAI, model: str = "scripted/echo") -> object:
    return client.chat.completions.create(model=model, messages=[{"role": "user", "content": "hello"}])


def respond(client: openai.OpenAI, model: str = "scripted/echo") -> object:
    return client.responses.create(model=model, input="hello", store=False)


BOTH: list[Ask] = [chat, respond]


class Counted:
    """A client that counts the requests it sends."""

    def __init__(self, service: ModelService, api_key: str | None = None) -> None:
        self.requests = 0
        self.http = httpx2.Client(event_hooks={"request": [self._count]})
        self.client = connect(service, api_key, http_client=self.http)

    def _count(self, _: object) -> None:
        self.requests += 1

    def refusal(self, ask: Ask, model: str = "scripted/echo") -> openai.APIStatusError:
        """Send a request that is refused. Check that it was sent once."""
        with self.client, pytest.raises(openai.APIStatusError) as raised:
            ask(self.client, model)
        assert self.requests == 1
        assert raised.value.type is not None
        assert raised.value.request_id
        return raised.value


@pytest.fixture
def counted(service: ModelService) -> Counted:
    return Counted(service)


def newcomer(service: ModelService, *, credits_given: int = CREDITS) -> Person:
    """Create a user in an organization of its own."""
    organization = service.identity.organization()
    if credits_given:
        service.give_credits(organization.id, credits_given)
    return service.identity.person(organization.id, bound=True)


@pytest.mark.parametrize("ask", BOTH)
def test_an_unknown_model(counted: Counted, ask: Ask) -> None:
    error = counted.refusal(ask, "scripted/nothing")
    assert isinstance(error, openai.NotFoundError)
    assert (error.code, error.param) == ("model_not_found", "model")


def test_a_model_that_the_endpoint_does_not_support(counted: Counted) -> None:
    error = counted.refusal(respond, "scripted/chat-only")
    assert isinstance(error, openai.BadRequestError)
    assert (error.code, error.param) == ("model_not_supported", "model")


@pytest.mark.parametrize("ask", BOTH)
def test_a_model_that_produces_no_text(counted: Counted, ask: Ask) -> None:
    error = counted.refusal(ask, "scripted/pictures")
    assert isinstance(error, openai.BadRequestError)
    assert error.code == "model_not_supported"


@pytest.mark.parametrize("ask", BOTH)
def test_a_caller_without_the_permission(service: ModelService, ask: Ask) -> None:
    organization = service.identity.organization()
    service.give_credits(organization.id, CREDITS)
    made = service.identity.deployment(organization.id)
    daemon = str(made.deployment.daemon_identity_id)
    query(service.stack, "DELETE FROM role_bindings WHERE subject_identity_id = %s", (daemon,))
    error = Counted(service, service.identity.access_token(made)).refusal(ask)
    assert isinstance(error, openai.PermissionDeniedError)
    assert error.code == "model_authorization_denied"


@pytest.mark.parametrize(
    "state",
    [
        {"store": True},
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"background": True},
        {"store": None},
    ],
)
def test_a_response_that_needs_state(counted: Counted, state: dict[str, object]) -> None:
    error = counted.refusal(
        lambda client, model: client.responses.create(
            model=model, input="hello", extra_body={"store": False, **state}
        )
    )
    assert isinstance(error, openai.BadRequestError)
    assert (error.code, error.param) == ("response_state_not_supported", next(iter(state)))


def test_response_without_store_false(counted: Counted) -> None:
    error = counted.refusal(lambda client, model: client.responses.create(model=model, input="hello"))
    assert (error.status_code, error.code, error.param) == (400, "response_state_not_supported", "store")


@pytest.mark.parametrize("ask", BOTH)
def test_an_organization_without_credits(service: ModelService, ask: Ask) -> None:
    error = Counted(service, newcomer(service, credits_given=0).api_key).refusal(ask)
    assert (type(error), error.status_code) == (openai.APIStatusError, 402)
    assert error.code == "insufficient_credits"
    assert isinstance(error.body, dict)
    assert (error.body["available"], error.body["held"]) == ("0", "0")


@pytest.mark.parametrize("ask", BOTH)
def test_call_whose_maximum_cost_exceeds_the_balance(service: ModelService, ask: Ask) -> None:
    person = newcomer(service)
    error = Counted(service, person.api_key).refusal(ask, "scripted/dear")
    assert (error.status_code, error.code) == (402, "insufficient_credits")
    with connect(service, person.api_key) as client:
        ask(client, "scripted/echo")


@pytest.mark.parametrize("ask", BOTH)
def test_caller_without_a_paying_organization(service: ModelService, ask: Ask) -> None:
    error = Counted(service, service.identity.operator().api_key).refusal(ask)
    assert isinstance(error, openai.BadRequestError)
    assert error.code == "billing_organization_required"


@pytest.mark.parametrize("ask", BOTH)
def test_an_organization_whose_credit_policy_is_suspended(service: ModelService, ask: Ask) -> None:
    organization = service.identity.organization()
    service.give_credits(organization.id, CREDITS)
    with service.database.transaction() as session:
        set_policy(session, organization_id=organization.id, policy=Policy.SUSPENDED, actor=OPERATOR)
    person = service.identity.person(organization.id, bound=True)
    error = Counted(service, person.api_key).refusal(ask)
    assert isinstance(error, openai.PermissionDeniedError)
    assert error.code == "credit_policy_suspended"


@pytest.mark.parametrize("key", ["svk_wrong", "sk-anything", "x.y.z"])
def test_a_wrong_key(service: ModelService, key: str) -> None:
    for ask in (chat, respond, lambda client, _: client.models.list()):
        error = Counted(service, key).refusal(ask)
        assert isinstance(error, openai.AuthenticationError)
        assert error.code == "invalid_api_key"


def test_a_malformed_request_names_what_is_wrong(counted: Counted) -> None:
    wrong: Any = [{"role": "user", "content": 7}]
    error = counted.refusal(lambda client, model: client.chat.completions.create(model=model, messages=wrong))
    assert isinstance(error, openai.BadRequestError)
    assert error.param is not None
    assert error.param.startswith("messages[0]")


def test_call_that_a_provider_may_have_run_is_not_retried(counted: Counted) -> None:
    error = counted.refusal(
        lambda client, model: client.chat.completions.create(
            model=model, messages=[{"role": "user", "content": "!fail 500"}]
        )
    )
    assert isinstance(error, openai.InternalServerError)
    assert (error.status_code, error.code) == (502, "provider_error")


@pytest.mark.parametrize("directive", ["!break after 2", "!end after 2", "!fail 500 after 2"])
def test_call_that_a_provider_breaks_off_is_not_retried(counted: Counted, directive: str) -> None:
    error = counted.refusal(
        lambda client, model: client.responses.create(
            model=model, input=f"!tokens 9\n{directive}", store=False
        )
    )
    assert (error.status_code, error.code) == (502, "provider_error")


def test_call_that_times_out_before_its_first_token_is_not_retried(counted: Counted) -> None:
    error = counted.refusal(
        lambda client, _: client.responses.create(model="scripted/hasty", input="!wait 1000", store=False)
    )
    assert isinstance(error, openai.InternalServerError)
    assert (error.status_code, error.code) == (504, "provider_timeout")


@pytest.mark.parametrize("is_stream", [False, True])
def test_provider_validation_error_is_passed_on(counted: Counted, *, is_stream: bool) -> None:
    refusal = {
        "message": "no such tool",
        "type": "invalid_request_error",
        "param": "tools",
        "code": "no_tool",
    }
    text = DIRECTIVE + json.dumps({"status": 400, "body": json.dumps({"error": refusal})})
    error = counted.refusal(
        lambda client, _: client.chat.completions.create(
            model="fake/chat", messages=[{"role": "user", "content": text}], stream=is_stream
        )
    )
    assert isinstance(error, openai.BadRequestError)
    assert "no such tool" in error.message
    assert (error.param, error.code) == ("tools", "no_tool")


def test_call_to_an_overloaded_provider_is_retried(service: ModelService) -> None:
    counted = Counted(service)
    text = DIRECTIVE + '{"status": 429, "headers": {"retry-after": "1"}, "body": "{}"}'
    with counted.client, pytest.raises(openai.InternalServerError) as raised:
        counted.client.with_options(max_retries=1).chat.completions.create(
            model="fake/chat", messages=[{"role": "user", "content": text}]
        )
    assert (raised.value.status_code, raised.value.code) == (503, "overloaded")
    assert raised.value.response.headers["retry-after"] == "1"
    assert counted.requests == 2


def test_refused_calls_are_not_charged(service: ModelService) -> None:
    person = newcomer(service)
    with connect(service, person.api_key, max_retries=0) as client:
        for model in ("scripted/nothing", "scripted/pictures", "scripted/dear"):
            with pytest.raises(openai.APIStatusError):
                chat(client, model)
    assert service.records("user_id = %s", str(person.user_id)) == []
