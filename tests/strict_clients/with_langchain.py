"""langchain-openai over chat completions and Responses."""

from collections.abc import Callable
from typing import Any

from langchain_core.messages import HumanMessage, ToolMessage
from langchain_core.tools import tool
from langchain_openai import ChatOpenAI

from tests.strict_clients.steps import HELLO, STRUCTURED, TOOL, UNKNOWN, City, Client, refused, weather


class LangChain(Client):
    """A chat model of langchain's."""

    def plain(self) -> object:
        return said(self._connect(self.model).invoke(HELLO))

    def streamed(self) -> object:
        return said(gather(self._connect(self.model), HELLO))

    def tool(self) -> object:
        return self._round_trip(lambda client, messages: client.invoke(messages))

    def streamed_tool(self) -> object:
        return self._round_trip(gather)

    def structured(self) -> object:
        return self._connect(self.model).with_structured_output(City).invoke(STRUCTURED).model_dump()

    def refused(self) -> object:
        return refused(lambda: self._connect(UNKNOWN).invoke(HELLO))

    def _connect(self, model: str) -> Any:
        address = f"{self.url}/v1"
        if self.dialect == "responses":
            return ChatOpenAI(
                base_url=address, api_key=self.api_key, model=model, use_responses_api=True, store=False
            )
        return ChatOpenAI(base_url=address, api_key=self.api_key, model=model, stream_usage=True)

    def _round_trip(self, ask: Callable[[Any, Any], Any]) -> object:
        known = tool(weather)
        client = self._connect(self.model).bind_tools([known])
        messages: list[Any] = [HumanMessage(TOOL)]
        asked = ask(client, messages)
        results = [
            ToolMessage(known.invoke(call["args"]), tool_call_id=call["id"]) for call in asked.tool_calls
        ]
        calls = [[call["name"], call["args"]] for call in asked.tool_calls]
        return {"calls": calls, "text": ask(client, [*messages, asked, *results]).text}


def gather(client: Any, asked: Any) -> Any:
    """Join the chunks of a stream."""
    pieces = list(client.stream(asked))
    return sum(pieces[1:], start=pieces[0])


def said(message: Any) -> object:
    """Return a message's text and usage."""
    usage = message.usage_metadata
    cost = message.response_metadata.get("token_usage", {}).get("cost")
    return {"text": message.text, "tokens": [usage["input_tokens"], usage["output_tokens"]], "cost": cost}
