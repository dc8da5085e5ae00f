"""Reads of JSON about which nothing is certain: what is not of the expected type counts as absent."""

from __future__ import annotations

from typing import Any

from shared.models.dialects.requests import Json


def object_or_empty(value: Any) -> Json:
    """Take an object; anything else is an empty one."""
    return value if isinstance(value, dict) else {}


def objects_in(value: Any) -> list[Json]:
    """Take the objects in a list; anything else holds none."""
    return [element for element in value if isinstance(element, dict)] if isinstance(value, list) else []
