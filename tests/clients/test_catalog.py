"""The catalog through OpenAI's client."""

import openai
import pytest


def test_models_are_listed_with_their_metadata(client: openai.OpenAI) -> None:
    listed = {model.id: model for model in client.models.list()}
    assert {"scripted/echo", "scripted/echo-responses", "fake/chat"} <= listed.keys()
    assert "scripted/pictures" not in listed
    one = listed["scripted/echo"]
    assert (one.object, one.owned_by) == ("model", "scripted")
    assert one.model_extra is not None
    pricing = one.model_extra["pricing"]
    shown = pricing["prompt"], pricing["completion"], pricing["unit"]
    assert shown == ("1", "2", "credits_per_million_tokens")


def test_a_model_whose_id_has_slashes_is_retrieved(client: openai.OpenAI) -> None:
    one = client.models.retrieve("scripted/echo-responses")
    assert one.id == "scripted/echo-responses"
    assert one.model_extra is not None
    assert set(one.model_extra) == {
        "name",
        "description",
        "provider",
        "pricing",
        "architecture",
        "context_length",
        "max_completion_tokens",
        "knowledge_cutoff",
        "usage",
        "supported_endpoints",
    }


@pytest.mark.parametrize(
    "unknown", ["nothing", "scripted/ech", "Scripted/echo", "scripted/pictures", "a/b/c"]
)
def test_a_model_that_is_not_listed_is_not_found(client: openai.OpenAI, unknown: str) -> None:
    with pytest.raises(openai.NotFoundError) as raised:
        client.models.retrieve(unknown)
    assert raised.value.code == "model_not_found"
