"""openai-agents over chat completions and Responses: its runner calls the tool by itself."""

import asyncio
import json
from typing import Any

from agents import (
    Agent,
    ModelSettings,
    OpenAIChatCompletionsModel,
    OpenAIResponsesModel,
    Runner,
    ToolCallItem,
    function_tool,
)
from openai import AsyncOpenAI

from tests.strict_clients.steps import HELLO, STRUCTURED, TOOL, UNKNOWN, City, Client, refused, weather


class OpenAIAgents(Client):
    """An agent of OpenAI's framework."""

    def plain(self) -> object:
        done = Runner.run_sync(self._agent(), HELLO)
        return {"text": done.final_output, "tokens": tokens(done)}

    def streamed(self) -> object:
        done, text = asyncio.run(follow(self._agent(), HELLO))
        return {"text": text, "tokens": tokens(done)}

    def tool(self) -> object:
        done = Runner.run_sync(self._agent(tools=[function_tool(weather)]), TOOL)
        return {"calls": calls(done), "text": done.final_output}

    def streamed_tool(self) -> object:
        done, text = asyncio.run(follow(self._agent(tools=[function_tool(weather)]), TOOL))
        return {"calls": calls(done), "text": text}

    def structured(self) -> object:
        return Runner.run_sync(self._agent(output_type=City), STRUCTURED).final_output.model_dump()

    def refused(self) -> object:
        self.model = UNKNOWN
        return refused(lambda: Runner.run_sync(self._agent(), HELLO))

    def _agent(self, **options: Any) -> Any:
        client = AsyncOpenAI(base_url=f"{self.url}/v1", api_key=self.api_key)
        if self.dialect == "responses":
            model: Any = OpenAIResponsesModel(self.model, client)
            settings = ModelSettings(store=False)
        else:
            model = OpenAIChatCompletionsModel(self.model, client)
            settings = ModelSettings(include_usage=True)
        return Agent("Ada", model=model, model_settings=settings, **options)


async def follow(agent: Any, text: str) -> tuple[Any, str]:
    """Run an agent and join its streamed text."""
    running = Runner.run_streamed(agent, text)
    told = [event.data async for event in running.stream_events() if event.type == "raw_response_event"]
    return running, "".join(data.delta for data in told if data.type == "response.output_text.delta")


def tokens(done: Any) -> list[int]:
    """Return a run's usage."""
    usage = done.context_wrapper.usage
    return [usage.input_tokens, usage.output_tokens]


def calls(done: Any) -> list[Any]:
    """Return the tool calls of a run."""
    asked = [item.raw_item for item in done.new_items if isinstance(item, ToolCallItem)]
    return [[call.name, json.loads(call.arguments)] for call in asked]
