"""The bytes of a version that a download requests: preconditions and ranges by RFC 9110 (13 and 14).

This module does no I/O: header values in, a decision out. Versions never change, so their entity tag is
strong and they have no modification date. Conditions on dates are ignored, and an `If-Range` with a date
never matches.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum

from shared.errors import DomainError, Kind
from shared.files.errors import VersionMismatch

MAXIMUM_RANGES = 16
CONDITIONS = {
    "Range": "The bytes to send: up to 16 ranges, as `bytes=0-99,-100`.",
    "If-Range": "An `ETag`: send the ranges of this content, or else all of it.",
    "If-Match": "`ETag`s, or `*`: only this content is wanted.",
    "If-None-Match": "`ETag`s, or `*`, of content that the client has.",
}
"""The request headers that select bytes, for the API's description."""

_ENTITY_TAG = re.compile(r'(W/)?("[\x21\x23-\x7e\x80-\xff]*")')
_RANGE = re.compile(r"([0-9]*)-([0-9]*)", re.ASCII)
_POSITION_DIGITS = 18  # A number with more digits is larger than the size of any content.


class RangeNotSatisfiable(DomainError):
    """The content has none of the requested bytes."""

    code = "range_not_satisfiable"
    kind = Kind.RANGE_NOT_SATISFIABLE


@dataclass(frozen=True, slots=True, order=True)
class ByteRange:
    """The bytes from `start` up to, but not including, `stop`."""

    start: int
    stop: int

    def __len__(self) -> int:
        return self.stop - self.start


class Selection(Enum):
    """Responses to a request that selects no ranges."""

    WHOLE = "whole"
    NOT_MODIFIED = "not modified"


def select_bytes(
    method: str, headers: Mapping[str, str], *, entity_tag: str, byte_size: int
) -> Selection | Sequence[ByteRange]:
    """Return which response a request gets: the whole content, "not modified", or ranges in the requested order.

    `headers` contains If-Match, If-None-Match, If-Range and Range, as far as the client sent them. Raises
    VersionMismatch, RangeNotSatisfiable.
    """
    if "If-Match" in headers and not _matches(headers["If-Match"], entity_tag, is_weak=False):
        raise VersionMismatch("The content is not the one named in If-Match.")
    if "If-None-Match" in headers and _matches(headers["If-None-Match"], entity_tag, is_weak=True):
        return Selection.NOT_MODIFIED
    if method != "GET" or "Range" not in headers or headers.get("If-Range", entity_tag).strip() != entity_tag:
        return Selection.WHOLE
    return _select_ranges(headers["Range"], byte_size)


def _matches(condition: str, entity_tag: str, *, is_weak: bool) -> bool:
    if condition.strip() == "*":
        return True
    return any(tag == entity_tag and (is_weak or not weak) for weak, tag in _ENTITY_TAG.findall(condition))


def _select_ranges(value: str, byte_size: int) -> Selection | Sequence[ByteRange]:
    requested = _read_ranges(value, byte_size)
    # Many clients send a Range with every request, so respond to it with the whole empty content instead of
    # 416.
    if requested is None or byte_size == 0:
        return Selection.WHOLE
    satisfiable = [at for at in requested if at.start < at.stop]
    if not satisfiable:
        raise RangeNotSatisfiable(byteSize=byte_size)
    return _coalesced(satisfiable)


def _read_ranges(value: str, byte_size: int) -> list[ByteRange] | None:
    """Return the ranges of a Range header.

    Return None if the header is to be ignored: it has another unit, is malformed, or has too many ranges. A
    range that contains no byte of the content becomes an empty range.
    """
    unit, separator, listed = value.partition("=")
    if not separator or unit.strip().lower() != "bytes":
        return None
    items = [item for part in listed.split(",") if (item := part.strip(" \t"))]
    if not 0 < len(items) <= MAXIMUM_RANGES:
        return None
    ranges = [_read_range(item, byte_size) for item in items]
    known = [at for at in ranges if at is not None]
    return known if len(known) == len(ranges) else None


def _read_range(item: str, byte_size: int) -> ByteRange | None:
    match = _RANGE.fullmatch(item)
    if match is None or item == "-":
        return None
    first, last = _read_position(match[1]), _read_position(match[2])
    if first is None:
        return ByteRange(max(0, byte_size - (last or 0)), byte_size)
    if last is None:
        return ByteRange(min(first, byte_size), byte_size)
    if last < first:
        return None
    return ByteRange(min(first, byte_size), min(last + 1, byte_size))


def _read_position(digits: str) -> int | None:
    """Parse a position of any length. Return None if `digits` is empty.

    A position beyond any content becomes 10 to the power of `_POSITION_DIGITS`.
    """
    if not digits:
        return None
    significant = digits.lstrip("0")
    return int(significant or 0) if len(significant) <= _POSITION_DIGITS else 10**_POSITION_DIGITS


def _coalesced(ranges: list[ByteRange]) -> Sequence[ByteRange]:
    """Join ranges that touch or overlap, so that no byte is sent twice. If none do, keep the requested order."""
    joined: list[ByteRange] = []
    for at in sorted(ranges):
        if joined and at.start <= joined[-1].stop:
            joined[-1] = ByteRange(joined[-1].start, max(joined[-1].stop, at.stop))
        else:
            joined.append(at)
    # RFC 9110, 15.3.7.2 allows the requested order, and some clients rely on it, so keep it if no ranges were
    # joined.
    return ranges if len(joined) == len(ranges) else joined
