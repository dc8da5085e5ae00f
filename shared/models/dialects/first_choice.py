"""What a dialect with one reply a request follows of a chat upstream: its first choice, its usage, and its end."""

from shared.credits.prices import TokenCounts
from shared.models.dialects.chat_choices import ChatChoice
from shared.models.dialects.requests import Json
from shared.models.dialects.token_counts import read_usage

_CUT = frozenset({"length", "content_filter"})


class FirstChoiceStream:
    """The part of a reply that is read alike, whatever is written of it."""

    def __init__(self, call_id_prefix: str) -> None:
        self._choice = ChatChoice(call_id_prefix)
        self.usage: TokenCounts | None = None
        self.is_complete = False

    @property
    def size_bytes(self) -> int:
        """What the model has said so far."""
        return self._choice.size_bytes

    @property
    def status(self) -> str:
        """`incomplete` where the reply was cut by a limit or a filter."""
        return "incomplete" if self._choice.finish_reason in _CUT else "completed"

    def _follow(self, chunk: Json) -> Json | None:
        """Read one chunk, or a whole completion; give what its first choice says anew, in regular form."""
        usage = chunk.get("usage")
        if usage is not None:
            self.usage = read_usage(usage) or self.usage
        choices = chunk.get("choices")
        if not isinstance(choices, list) or not choices:
            # Only a usage report comes without choices; it tells that the upstream said all it had to say.
            self.is_complete = self.is_complete or (usage is not None and self._choice.has_role)
            return None
        first = choices[0]
        if not isinstance(first, dict) or first.get("index") not in (0, None):
            return None
        read = self._choice.read(first)
        self.is_complete = self.is_complete or self._choice.finish_reason is not None
        return read
