"""The script of the chaos agent, and the log that each of its tasks must therefore have."""

from collections.abc import Sequence
from typing import Any

CHUNKS = 12
SCRIPT = f"""
rules:
  - match: {{text: ping}}
    steps: [{{message: pong}}]
  - match: {{regex: "^hang"}}
    steps: [{{status: Waiting}}, {{hang: true}}]
  - match: {{regex: "^ask"}}
    steps:
      - status: Thinking
      - input_required: Which one?
      - artifact: {{id: choice, text: This one}}
      - complete: Chosen
  - match: {{regex: "^story (.*)$"}}
    steps:
      - status: Once upon a time
      - artifact: {{id: story, name: Story, chunks: [{", ".join(f'"{n} "' for n in range(CHUNKS))}], every: 0.05}}
      - artifact: {{id: book, file: {{name: book.txt, media_type: text/plain, text: "The story of ${{1}}"}}}}
      - complete: The end
"""
STORY_TEXT = "".join(f"{number} " for number in range(CHUNKS))
INTERRUPTED = "The agent was interrupted before it had finished and cannot resume."
ATTEMPTS = 3
"""After so many deaths in the middle of it a turn may fail with that sentence."""
STORY = ["WORKING", *(f"story {n}" for n in range(CHUNKS)), "book", "COMPLETED"]
ASK = ["WORKING", "INPUT_REQUIRED", "SUBMITTED", "choice", "COMPLETED"]
HANG = (["WORKING", "CANCELED"], ["CANCELED"])


def book_of(name: str) -> bytes:
    """Return the content of the file that a story creates."""
    return f"The story of {name}".encode()


def outline(events: Sequence[dict[str, Any]]) -> list[str]:
    """Return what each event reports, in one or two words."""
    return [_said(event) for event in events]


def _said(event: dict[str, Any]) -> str:
    if "statusUpdate" in event:
        state: str = event["statusUpdate"]["status"]["state"]
        return state.removeprefix("TASK_STATE_")
    artifact = event["artifactUpdate"]["artifact"]
    if artifact["artifactId"] != "story":
        return str(artifact["artifactId"])
    return "story " + str(artifact["parts"][0]["text"]).strip()
