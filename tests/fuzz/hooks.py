"""What schemathesis cannot guess of our API: an upload's size is its content's, and its operation is new."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import schemathesis
from schemathesis import Case, HookContext

CONTENT = b"content made by the fuzzer"


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, object]) -> None:
    """Make positive uploads and replaces whole, so that the routes behind the parameters are reached."""
    if "multipart/form-data" not in (case.media_type or "") or not _is_positive(case):
        return
    case.query = {**(case.query or {}), "byteSize": len(CONTENT), "operationId": str(uuid4())}
    case.body = {"file": CONTENT}  # type: ignore[dict-item]


def _is_positive(case: Case[Any]) -> bool:
    return case.meta is None or case.meta.generation.mode.is_positive
