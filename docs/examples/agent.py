"""An agent in twenty lines: it looks at a photo, asks a model, and stores a report for the one who receives it."""

import os
from collections.abc import Iterator

from quartermaster import Client
from quartermaster.agents import Agent, Artifact, Ask, File, Output, Status

agent = Agent("Reporter", "Reports on a photo.")


@agent.skill(tags=["reports"], examples=["What is this?"], input_modes=["text/plain", "image/png"])
def report(text: str, files: tuple[File, ...], client: Client) -> Iterator[Output]:
    """Describe what is in a photo."""
    if not files:
        yield Ask("Which photo?")
        return
    yield Status("Looking at it")
    photo = files[0].read()
    question = f"{text} {files[0].name}: {len(photo)} bytes."
    answer = client.openai().responses.create(
        model=os.environ.get("MODEL", "scripted/echo"), store=False, input=question
    )
    yield Artifact(answer.output_text.encode(), "report.txt")
    yield "Here is your report."


if __name__ == "__main__":
    agent.serve(port=int(os.environ.get("PORT", "8000")))
