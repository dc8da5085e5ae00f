"""litellm's SDK over chat completions, Responses (through its bridge from completions) and Anthropic's messages."""

import json
from collections.abc import Callable
from typing import Any

import litellm

from tests.clients.samples import WEATHER_FUNCTION
from tests.strict_clients import steps
from tests.strict_clients.steps import HELLO, City, Client

PROVIDERS = {"chat": "openai/", "responses": "openai/responses/", "messages": "anthropic/"}
WEATHER = {
    "type": "function",
    "function": {name: value for name, value in WEATHER_FUNCTION.items() if name != "strict"},
}


class LiteLLM(Client):
    """The functions of litellm."""

    def __init__(self, *given: str) -> None:
        """Register the model: for a model that litellm does not know, it fakes streams of Responses, without calls."""
        super().__init__(*given)
        known = {"litellm_provider": "openai", "supports_native_streaming": True}
        litellm.register_model({f"openai/{self.model}": known})

    def plain(self) -> object:
        return said(self._ask(user(HELLO)))

    def streamed(self) -> object:
        return said(self._gather(user(HELLO)))

    def tool(self) -> object:
        return round_trip(self._ask)

    def streamed_tool(self) -> object:
        return round_trip(self._gather)

    def structured(self) -> object:
        made = self._ask(user(steps.STRUCTURED), response_format=City)
        return City.model_validate_json(made.choices[0].message.content).model_dump()

    def refused(self) -> object:
        self.model = steps.UNKNOWN
        return steps.refused(lambda: self._ask(user(HELLO)))

    def _ask(self, messages: Any, **options: Any) -> Any:
        if self.dialect == "responses":
            options["extra_body"] = {"store": False}  # The bridge drops `store` itself.
        return litellm.completion(
            model=PROVIDERS[self.dialect] + self.model,
            messages=messages,
            api_base=self.url if self.dialect == "messages" else f"{self.url}/v1",
            api_key=self.api_key,
            max_tokens=steps.MAX_TOKENS,
            **options,
        )

    def _gather(self, messages: Any, **options: Any) -> Any:
        pieces = self._ask(messages, stream=True, stream_options={"include_usage": True}, **options)
        return litellm.stream_chunk_builder(list(pieces))


def user(text: str) -> list[Any]:
    """Return the first message of a conversation."""
    return [{"role": "user", "content": text}]


def said(made: Any) -> object:
    """Return a completion's text and usage."""
    text = made.choices[0].message.content
    tokens = [made.usage.prompt_tokens, made.usage.completion_tokens]
    return {"text": text, "tokens": tokens, "cost": getattr(made.usage, "cost", None)}


def round_trip(ask: Callable[..., Any]) -> object:
    """Call the tool, and return the reply that uses its result."""
    messages = user(steps.TOOL)
    asked = ask(messages, tools=[WEATHER]).choices[0].message
    calls = [[call.function.name, json.loads(call.function.arguments)] for call in asked.tool_calls]
    messages.append(asked.model_dump())
    messages += [
        {"role": "tool", "tool_call_id": call.id, "content": steps.weather(**arguments)}
        for call, (_, arguments) in zip(asked.tool_calls, calls, strict=True)
    ]
    answered = ask(messages, tools=[WEATHER])
    return {"calls": calls, "text": answered.choices[0].message.content}
