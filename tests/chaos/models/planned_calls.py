"""Random calls: their manner, their length, and the misbehavior of the upstream."""

import json
import random
from collections.abc import Sequence
from typing import Any

from tests.chaos.models.calls import Manner, PlannedCall

_MANNERS = {
    Manner.WHOLE: 6,
    Manner.STREAMED: 6,
    Manner.SLOW: 1,
    Manner.LEFT: 3,
    Manner.ABANDONED: 2,
}
_REFUSAL = json.dumps({"error": {"message": "not now", "type": "server_error", "code": None}})


def plan_call(chance: random.Random, number: int, models: Sequence[str]) -> PlannedCall:
    """Return a random call to one of some models."""
    manner = chance.choices(list(_MANNERS), list(_MANNERS.values()))[0]
    chunks = chance.randint(400, 900) if manner is Manner.SLOW else chance.randint(1, 40)
    return PlannedCall(
        number=number,
        model=chance.choice(models),
        is_chat=chance.random() < 0.6,
        manner=manner,
        script={
            "chunks": chunks,
            **({} if manner is Manner.SLOW else _pace(chance)),
            **_reporting(chance),
            **_mishap(chance, chunks),
        },
    )


def _pace(chance: random.Random) -> dict[str, Any]:
    return chance.choice(({}, {}, {"delay_seconds": 0.005}, {"delay_seconds": 0.03}, {"wait_seconds": 0.3}))


def _reporting(chance: random.Random) -> dict[str, Any]:
    ways = ("own chunk", "finish chunk", "none")
    return {"usage": chance.choices(ways, (6, 2, 1))[0]}


def _mishap(chance: random.Random, chunks: int) -> dict[str, Any]:
    """Return a misbehavior for one call in five: a refusal, a truncated response, or invalid data."""
    if chance.random() > 0.2:
        return {}
    after = chance.randint(0, chunks)
    return chance.choice(
        (
            {"status": 500, "body": _REFUSAL},
            {"status": 503, "body": _REFUSAL, "headers": {"Retry-After": "1"}},
            {"status": 429, "body": _REFUSAL},
            {"reset_after": after},
            {"close_after": after},
            {"fail_after": after},
            {"garbage_after": after},
            {"stall_after": after},
        )
    )
