"""The steps that every client runs; `steps.mjs` is the same for Node.

The clients have a Python of their own, so these modules may import only its packages.
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
    """A client with one method for each step."""

    def __init__(self, url: str, api_key: str, model: str, dialect: str) -> None:
        """Store the service's address, the key, the model and the dialect."""
        self.url = url
        self.api_key = api_key
        self.model = model
        self.dialect = dialect


class City(BaseModel):
    """A structured answer."""

    name: str
    people: int


def weather(city: str) -> str:
    """Return the weather."""
    return f"rain in {city}"


def refused(ask: Callable[[], object]) -> object:
    """Send a request that is refused. Return the class of the error and its status."""
    try:
        return f"not refused: {ask()}"
    except Exception as error:  # noqa: BLE001 (its class is what is asked for)
        return [type(error).__name__, getattr(error, "status_code", None)]
