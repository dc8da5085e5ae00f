"""Tool calls out of the fragments that chat upstreams send: each call gets one dense index, one id, one name.

The official client joins fragments by `index` and concatenates every string, ids and names included, so each is sent
once. Upstreams number calls from one, give all index 0, leave out index or id, repeat the name, or send a call whole.
"""

import json
from dataclasses import dataclass, field
from typing import Any

from shared.models.dialects.requests import Json

_KINDS = {"function": "arguments", "custom": "input"}


@dataclass(slots=True, kw_only=True)
class ToolCall:
    """One call as far as it has come; `pieces` are its arguments."""

    index: int
    kind: str
    id: str
    upstream_id: str | None
    upstream_index: int | None
    name: str
    pieces: list[str] = field(default_factory=list)


class ToolCalls:
    """The calls of one choice, in the order in which they appeared."""

    def __init__(self, id_prefix: str) -> None:
        self._id_prefix = id_prefix
        self._calls: list[ToolCall] = []

    def __len__(self) -> int:
        return len(self._calls)

    def read(self, fragments: Any) -> list[Json]:
        """Rewrite the fragments of one chunk for the client; what says nothing new is left out."""
        if not isinstance(fragments, list):
            return []
        read = [self._read(fragment) for fragment in fragments if isinstance(fragment, dict)]
        return [fragment for fragment in read if fragment is not None]

    def _read(self, fragment: Json) -> Json | None:
        kind = "custom" if isinstance(fragment.get("custom"), dict) else "function"
        body = fragment.get(kind)
        body = body if isinstance(body, dict) else {}
        text = _text(body.get(_KINDS[kind]))
        name = body.get("name") if isinstance(body.get("name"), str) else None
        call = self._find(fragment, name)
        if call is None:
            return self._open(fragment, kind, name, text)
        call.upstream_id = call.upstream_id or fragment.get("id")
        said: Json = {_KINDS[call.kind]: text}
        if name and name != call.name:
            call.name += name
            said["name"] = name
        elif not text:
            return None
        call.pieces.append(text)
        return {"index": call.index, call.kind: said}

    def _open(self, fragment: Json, kind: str, name: str | None, text: str) -> Json:
        index = len(self._calls)
        given = fragment.get("id") if isinstance(fragment.get("id"), str) else None
        call = ToolCall(
            index=index,
            kind=kind,
            id=given or f"{self._id_prefix}{index}",
            upstream_id=given or None,
            upstream_index=_whole(fragment.get("index")),
            name=name or "",
            pieces=[text],
        )
        self._calls.append(call)
        said = {"name": call.name, _KINDS[kind]: text}
        return {**fragment, "index": index, "id": call.id, "type": kind, kind: said}

    def _find(self, fragment: Json, name: str | None) -> ToolCall | None:
        """Find the call that a fragment continues; None where it opens a new one."""
        given, index = fragment.get("id"), _whole(fragment.get("index"))
        if given:
            same = [call for call in self._calls if call.upstream_id == given]
            if same:
                return same[-1]
        candidates = [call for call in self._calls if index is None or call.upstream_index == index]
        if not candidates:
            return None
        last = candidates[-1]
        if given:
            # An id that comes late belongs to the call it continues; another id is another call.
            return last if last.upstream_id is None and not name else None
        if name and last.name and _is_complete(last):
            return None
        return last


def _text(value: Any) -> str:
    """Take arguments as text; some upstreams send the object itself."""
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _is_complete(call: ToolCall) -> bool:
    try:
        json.loads("".join(call.pieces))
    except ValueError:
        return False
    return True
