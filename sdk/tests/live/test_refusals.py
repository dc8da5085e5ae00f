"""Errors of a running service, as exceptions."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest

from quartermaster import errors

VERSION = {"A2A-Version": "1.0"}


def test_missing_task_is_refused_with_the_a2a_reason(owner: Any) -> None:
    with pytest.raises(errors.NotFound) as caught:
        owner.raw.request("GET", f"/tasks/{uuid4()}", headers=VERSION)
    assert (caught.value.status, caught.value.code) == (404, "TASK_NOT_FOUND")


def test_a_message_without_parts_is_refused_with_the_fields_that_are_wrong(owner: Any) -> None:
    with pytest.raises(errors.InvalidRequest) as caught:
        owner.raw.request("POST", "/message:send", json={"message": {"messageId": "m"}}, headers=VERSION)
    assert caught.value.code == "INVALID_PARAMS"
    assert {at.name for at in caught.value.errors} >= {"message.parts"}
