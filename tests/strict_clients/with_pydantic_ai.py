"""pydantic-ai over chat completions, Responses and Anthropic's messages: its agent calls the tool by itself."""

from typing import Any

from pydantic_ai import Agent, NativeOutput
from pydantic_ai.messages import ModelResponse, ToolCallPart
from pydantic_ai.models.anthropic import AnthropicModel
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel
from pydantic_ai.providers.anthropic import AnthropicProvider
from pydantic_ai.providers.openai import OpenAIProvider

from tests.strict_clients.steps import HELLO, STRUCTURED, TOOL, UNKNOWN, City, Client, refused, weather


class PydanticAI(Client):
    """An agent of pydantic-ai's."""

    def plain(self) -> object:
        done = self._agent().run_sync(HELLO)
        return {"text": done.output, "tokens": tokens(done)}

    def streamed(self) -> object:
        running = self._agent().run_stream_sync(HELLO)
        return {"text": "".join(running.stream_text(delta=True)), "tokens": tokens(running)}

    def tool(self) -> object:
        done = self._agent(tools=[weather]).run_sync(TOOL)
        return {"calls": calls(done), "text": done.output}

    def streamed_tool(self) -> object:
        running = self._agent(tools=[weather]).run_stream_sync(TOOL)
        return {"text": "".join(running.stream_text(delta=True)), "calls": calls(running)}

    def structured(self) -> object:
        return self._agent(output_type=NativeOutput(City)).run_sync(STRUCTURED).output.model_dump()

    def refused(self) -> object:
        self.model = UNKNOWN
        return refused(lambda: self._agent().run_sync(HELLO))

    def _agent(self, **options: Any) -> Any:
        return Agent(self._connect(), **options)

    def _connect(self) -> Any:
        if self.dialect == "messages":
            return AnthropicModel(
                self.model,
                provider=AnthropicProvider(base_url=self.url, api_key=self.api_key),
                profile={"supports_json_schema_output": True},
            )
        provider = OpenAIProvider(base_url=f"{self.url}/v1", api_key=self.api_key)
        if self.dialect == "responses":
            return OpenAIResponsesModel(self.model, provider=provider, settings={"openai_store": False})
        return OpenAIChatModel(self.model, provider=provider)


def tokens(done: Any) -> list[int]:
    """Return a run's usage."""
    return [done.usage.input_tokens, done.usage.output_tokens]


def calls(done: Any) -> list[Any]:
    """Return the tool calls of a run."""
    replies = [message for message in done.all_messages() if isinstance(message, ModelResponse)]
    parts = [part for reply in replies for part in reply.parts if isinstance(part, ToolCallPart)]
    return [[part.tool_name, part.args_as_dict()] for part in parts]
