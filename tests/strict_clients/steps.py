"""What every client is asked to do; `steps.mjs` is the same for Node.

The clients have a Python of their own, so nothing in these modules may need what the project's environment has.
"""

from collections.abc import Callable

from pydantic import BaseModel

HELLO = "hello there"
TOOL = '!tool weather {"city": "Bergen"}'
STRUCTURED = '!json {"name": "Bergen", "people": 290000}'
UNKNOWN = "scripted/nothing"
MAX_TOKENS = 100
STEPS = ("plain", "streamed", "tool", "streamed_tool", "structured", "refused")


class Client:
    """Someone who can take all steps, by methods of their names."""

    def __init__(self, url: str, api_key: str, model: str, dialect: str) -> None:
        """Remember where and what to ask."""
        self.url = url
        self.api_key = api_key
        self.model = model
        self.dialect = dialect


class City(BaseModel):
    """A structured answer."""

    name: str
    people: int


def weather(city: str) -> str:
    """Tell the weather."""
    return f"rain in {city}"


def refused(ask: Callable[[], object]) -> object:
    """Ask, and name the class of the error and its status."""
    try:
        return f"not refused: {ask()}"
    except Exception as error:  # noqa: BLE001 (its class is what is asked for)
        return [type(error).__name__, getattr(error, "status_code", None)]
