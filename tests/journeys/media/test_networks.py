"""Files that people send in Slack, Twilio, Telegram, WhatsApp and Discord become files of the receiving identity."""

import hashlib
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
import requests

from tests.journeys.conftest import Installation, assert_nothing_left_over
from tests.support.agents.rest_clients import TIMEOUT_SECONDS
from tests.support.data.media_samples import SAMPLES, Sample
from tests.support.networks import STAND_INS, StandIn
from tests.support.processes.stack import Service, free_port, wait_until

pytestmark = pytest.mark.usefixtures("workers")
DEVELOPMENT = {"EGRESS_ALLOW_PRIVATE": "true", "EGRESS_ALLOW_HTTP": "true"}


@pytest.fixture
def front(installation: Installation) -> Iterator[Service]:
    """Run a web process and a worker that may connect to the stand-ins on this host."""
    stack = installation.stack
    front = stack.web(port=free_port(), **DEVELOPMENT)
    with stack.running(front, stack.worker("media", **DEVELOPMENT)):
        yield front


def test_files_of_every_type_arrive_from_every_network(installation: Installation, front: Service) -> None:
    distribution = installation.credentials["distribution"]
    path = f"/distributions/{distribution['id']}"
    ask(installation, front, "PATCH", f"/admin{path}", {"networks": [make.name for make in STAND_INS]})
    with ExitStack() as running:
        stand_ins = [running.enter_context(make()) for make in STAND_INS]
        expected: dict[tuple[str, str], Sample] = {}
        for stand_in in stand_ins:
            settings = {"settings": dict(stand_in.settings)}
            shown = ask(installation, front, "PUT", f"/admin{path}/networks/{stand_in.name}", settings)
            expected |= send(stand_in, shown["webhookUrl"], via=front)

        def imports() -> list[Any]:
            found: list[Any] = ask(installation, front, "GET", f"{path}/media?limit=100")["imports"]
            return [one for one in found if one["network"] in {make.name for make in STAND_INS}]

        wait_until(
            lambda: all(one["state"] in ("Stored", "Failed") for one in imports()), "all imports ended"
        )
        ended = imports()
    assert [one for one in ended if one["state"] != "Stored"] == []
    assert len(ended) == len(expected) == len(STAND_INS) * len(SAMPLES)
    for one in ended:
        sample = next(
            sample for (network, file_id), sample in expected.items() if told(one, network, file_id)
        )
        file = ask(installation, front, "GET", f"/files/{one['fileId']}")
        assert (file["purpose"], file["owner"]["id"]) == (
            "MessagingMedia",
            distribution["principalIdentityId"],
        )
        assert file["metadata"]["mediaType"] == sample.media_type
        assert file["metadata"]["contentSha256"] == hashlib.sha256(sample.content).hexdigest()
        assert installation.owner.download(one["fileId"]).content == sample.content
    assert_nothing_left_over(installation.stack)


def send(stand_in: StandIn, address: str, *, via: Service) -> dict[tuple[str, str], Sample]:
    """Send a message with each sample, each webhook twice; return the expected files by network and name."""
    kept = {stand_in.keep(sample): sample for sample in SAMPLES}
    alone = stand_in.sends_files_singly
    messages = [[file_id] for file_id in kept] if alone else [list(kept)]
    for number, files in enumerate(messages, 1):
        body = stand_in.message(*files, message=str(number))
        for _ in range(2):
            answer = requests.post(
                via.url + address[address.index("/distributions/") :],
                data=body,
                headers=stand_in.sign(body, url=address),
                timeout=TIMEOUT_SECONDS,
            )
            assert answer.status_code == 200, answer.text
    return {(stand_in.name, file_id): sample for file_id, sample in kept.items()}


def told(imported: Any, network: str, file_id: str) -> bool:
    return imported["network"] == network and file_id.endswith(imported["attachmentId"])


def ask(installation: Installation, front: Service, method: str, path: str, body: Any = None) -> Any:
    options = {} if body is None else {"json": body}
    answer = installation.owner.request(method, path, via=front.url, **options)
    assert answer.status_code == 200, answer.text
    return answer.json()
