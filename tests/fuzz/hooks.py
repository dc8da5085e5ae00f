"""Corrections of generated requests that schemathesis cannot derive from the OpenAPI document.

An upload's size is that of its content, and its operation id is new. A distribution's token is valid for that
distribution only.
"""

import os
from typing import Any
from uuid import uuid4

import schemathesis
from schemathesis import Case, HookContext

CONTENT = b"content made by the fuzzer"
DISTRIBUTION = "FUZZED_DISTRIBUTION"
_STATED = ("byteSize", "sha256")

schemathesis.serializer.alias("application/partial-upload", "application/octet-stream")


@schemathesis.hook
def before_call(context: HookContext, case: Case[Any], kwargs: dict[str, object]) -> None:
    """Complete positive requests, so that they reach the routes behind the validation of parameters."""
    if not _is_positive(case):
        return
    if DISTRIBUTION in os.environ and "distributionId" in (case.path_parameters or {}):
        case.path_parameters["distributionId"] = os.environ[DISTRIBUTION]
    if "multipart/form-data" not in (case.media_type or ""):
        return
    if case.path.startswith("/files"):
        case.query = {**(case.query or {}), "byteSize": len(CONTENT), "operationId": str(uuid4())}
        case.body = {"file": CONTENT}  # type: ignore[dict-item]
    elif isinstance(case.body, dict):
        fields = {name: value for name, value in case.body.items() if name not in _STATED}
        case.body = {**fields, "file": CONTENT}  # type: ignore[dict-item]


def _is_positive(case: Case[Any]) -> bool:
    return case.meta is None or case.meta.generation.mode.is_positive
