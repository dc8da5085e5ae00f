"""A replayed copy of a webhook has no effect, for every network's way of signing."""

import time
from collections.abc import Mapping
from uuid import uuid4

import pytest
from werkzeug.test import TestResponse

from shared.media.networks.registry import NETWORKS
from shared.media.networks.signatures import Timestamp
from tests.support.data.media_samples import PNG
from tests.support.networks import STAND_INS, StandIn
from tests.support.web.web_process import Front
from tests.web.media.webhook_senders import Line, open_line

UNTIMED = {
    "twilio": "its signature has no time; message and media ids make a replay the import that is there",
    "telegram": "it signs nothing; chat, message and file ids do the same",
    "whatsapp": "its signature has no time; message and media ids do the same",
}
"""Networks whose webhooks never grow old, and what makes that harmless. A new one must be thought about here."""
LONGEST_WINDOW_SECONDS = 600
DAY_SECONDS = 86_400
TIMED = [make for make in STAND_INS if NETWORKS[make.name].signature.timestamp]


@pytest.fixture(params=STAND_INS, ids=lambda make: make.name)
def line(request: pytest.FixtureRequest, front: Front) -> Line:
    make: type[StandIn] = request.param
    return open_line(front, make())


@pytest.fixture(params=TIMED, ids=lambda make: make.name)
def timed(request: pytest.FixtureRequest, front: Front) -> Line:
    make: type[StandIn] = request.param
    return open_line(front, make())


def message(line: Line) -> bytes:
    return line.stand_in.message(line.stand_in.keep(PNG), message=str(uuid4().int % 100_000))


def timestamp_of(line: Line) -> Timestamp | None:
    return NETWORKS[line.stand_in.name].signature.timestamp


def sign(line: Line, body: bytes, age_seconds: float = 0.0) -> Mapping[str, str]:
    return line.stand_in.sign(body, url=line.url, at=time.time() - age_seconds)


def post(line: Line, body: bytes, headers: Mapping[str, str]) -> TestResponse:
    return line.front.post(line.path, data=body, headers=headers)


def test_every_network_signs_a_time_or_is_listed_as_not() -> None:
    timestamps = {name: network.signature.timestamp for name, network in NETWORKS.items()}
    assert {name for name, timestamp in timestamps.items() if timestamp is None} == set(UNTIMED)
    windows = [timestamp.window_seconds for timestamp in timestamps.values() if timestamp is not None]
    assert all(0 < seconds <= LONGEST_WINDOW_SECONDS for seconds in windows)


def test_replayed_webhook_within_its_window_imports_nothing(line: Line) -> None:
    body = message(line)
    timestamp = timestamp_of(line)
    headers = sign(line, body, age_seconds=timestamp.window_seconds - 30 if timestamp else DAY_SECONDS)
    first, again = post(line, body, headers), post(line, body, headers)
    assert (first.status_code, first.data) == (again.status_code, again.data)
    assert again.status_code == 200
    assert len(line.imports()) == 1


@pytest.mark.parametrize("is_late", [True, False])
def test_a_webhook_beyond_its_window_is_refused(timed: Line, is_late: bool) -> None:
    timestamp, body = timestamp_of(timed), message(timed)
    assert timestamp is not None
    age_seconds = timestamp.window_seconds + 30
    answer = post(timed, body, sign(timed, body, age_seconds if is_late else -age_seconds))
    assert (answer.status_code, answer.get_json()["code"]) == (401, "signature_invalid")
    assert timed.imports() == []


def test_an_old_webhook_does_not_become_new_by_another_time(timed: Line) -> None:
    """A time in a header that is not part of what is signed would be anybody's to change."""
    timestamp, body = timestamp_of(timed), message(timed)
    assert timestamp is not None
    now = sign(timed, body)[timestamp.header]
    old = sign(timed, body, timestamp.window_seconds + 30)
    assert post(timed, body, {**old, timestamp.header: now}).status_code == 401
    assert timed.imports() == []


def test_a_copy_with_other_ids_is_refused_unless_the_network_signs_nothing(line: Line) -> None:
    body, other = message(line), message(line)
    copied = post(line, other, sign(line, body))
    signs_nothing = not NETWORKS[line.stand_in.name].signature.signed
    assert copied.status_code == (200 if signs_nothing else 401)
