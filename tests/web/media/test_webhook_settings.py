"""Networks are set up by administrators; what goes in does not come out."""

import json
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
from sqlalchemy import text

from shared import failpoints
from shared.encryption import Encryption
from shared.identity.access.authorization import OPERATOR
from shared.identity.directory.distributions import update_distribution
from shared.media.errors import NetworkNotConfigured
from shared.media.network_settings import get_credentials
from shared.media.networks.webhooks import previous
from tests.support.data.media_samples import PNG
from tests.support.networks import STAND_INS, DiscordStandIn, SlackStandIn, StandIn, TelegramStandIn
from tests.support.web.web_process import Front
from tests.web.media.webhook_senders import Line, open_line


@pytest.fixture
def slack(front: Front) -> Line:
    return open_line(front, SlackStandIn(), is_set_up=False)


def read(line: Line) -> Any:
    answer = line.front.get(line.settings_path, line.administrator.authorization)
    return answer.get_json() if answer.status_code == 200 else answer.status_code


def rows(line: Line) -> list[Any]:
    statement = text("SELECT * FROM network_settings WHERE distribution_id = :id ORDER BY name")
    with line.front.services.database.autocommit() as session:
        return list(session.execute(statement, {"id": line.distribution_id}).all())


def acts_of(line: Line) -> list[Any]:
    statement = text(
        "SELECT action, details FROM audit_events WHERE resource_id = :id AND details ? 'network' ORDER BY id"
    )
    with line.front.services.database.autocommit() as session:
        return list(session.execute(statement, {"id": str(line.distribution_id)}).all())


@pytest.mark.parametrize("make", STAND_INS, ids=lambda make: make.name)
def test_settings_are_shown_by_name_and_last_four_characters(front: Front, make: type[StandIn]) -> None:
    line = open_line(front, make(), is_set_up=False)
    assert read(line) == 404
    given = line.stand_in.settings
    shown = line.put_settings().get_json()
    assert shown == read(line)
    assert shown["webhookUrl"] == line.url
    assert shown["network"] == line.stand_in.name
    assert {one["name"]: one["last4"] for one in shown["settings"]} == {
        name: value[-4:] for name, value in given.items()
    }
    assert {one["previousExpiresAt"] for one in shown["settings"]} == {None}
    kept = b"".join(bytes(row.value_encrypted) for row in rows(line))
    for value in given.values():
        assert value not in json.dumps(shown)
        assert value.encode() not in kept


def credentials_of(line: Line, network: str) -> Any:
    encryption = Encryption(line.front.settings)
    with line.front.services.database.transaction() as session:
        return get_credentials(session, encryption, line.distribution_id, network)


def test_workers_get_what_was_set_and_the_defaults(front: Front) -> None:
    line = open_line(front, TelegramStandIn())
    expected = {**line.stand_in.settings, "apiBaseUrl": "https://api.telegram.org"}
    assert credentials_of(line, "telegram") == expected
    for network in ("slack", "standard"):
        with pytest.raises(NetworkNotConfigured):
            credentials_of(line, network)


def test_overlap_keeps_replaced_signing_secrets_and_no_tokens(front: Front) -> None:
    old, new = DiscordStandIn(), DiscordStandIn()
    line = open_line(front, old)
    shown = line.put_settings({**new.settings, "botToken": "another-" * 4}).get_json()["settings"]
    assert {one["name"]: one["previousExpiresAt"] is not None for one in shown} == {
        "publicKey": True,
        "botToken": False,
    }
    credentials = credentials_of(line, "discord")
    assert credentials[previous("publicKey")] == old.settings["publicKey"]
    assert previous("botToken") not in credentials


def test_settings_given_again_end_the_overlap_sooner_and_never_later(front: Front) -> None:
    old, new = DiscordStandIn(), DiscordStandIn()
    line = open_line(front, old)
    line.put_settings(new.settings, overlapSeconds=600)
    before, acts = credentials_of(line, "discord"), acts_of(line)
    assert before[previous("publicKey")] == old.settings["publicKey"]
    for longer in (600, 6000):
        line.put_settings(new.settings, overlapSeconds=longer)
        assert (credentials_of(line, "discord"), acts_of(line)) == (before, acts)
    line.put_settings(new.settings, overlapSeconds=0)
    assert previous("publicKey") not in credentials_of(line, "discord")
    assert len(acts_of(line)) == len(acts) + 1


def test_repeated_settings_are_kept_and_omitted_ones_reset(
    front: Front,
) -> None:
    line = open_line(front, DiscordStandIn())
    before = read(line)["settings"]
    line.put_settings({"publicKey": line.stand_in.settings["publicKey"]})
    (left,) = read(line)["settings"]
    assert left in before
    assert credentials_of(line, "discord") == {
        "publicKey": line.stand_in.settings["publicKey"],
        "apiBaseUrl": "https://discord.com/api/v10",
    }


GOOD = SlackStandIn().settings
ADDRESS = "apiBaseUrl"


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({}, {"settings.signingSecret", "settings.botToken"}),
        ({"signingSecret": GOOD["signingSecret"]}, {"settings.botToken"}),
        ({**GOOD, "purpose": "x" * 20}, {"settings.purpose"}),
        ({**GOOD, "signingSecret": "short"}, {"settings.signingSecret"}),
        ({**GOOD, "botToken": "with a space in it and long"}, {"settings.botToken"}),
        ({**GOOD, "botToken": "x" * 600}, {"settings.botToken"}),
        ({**GOOD, "botToken": "x\u0000" * 20}, {"settings.botToken"}),
        ({**GOOD, "botToken": "\u00e9" * 20}, {"settings.botToken"}),
        ({**GOOD, ADDRESS: "http://slack.com/api"}, {"settings.apiBaseUrl"}),
        ({**GOOD, ADDRESS: "ftp://slack.com"}, {"settings.apiBaseUrl"}),
        ({**GOOD, ADDRESS: "https://user:secret@slack.com"}, {"settings.apiBaseUrl"}),
        ({**GOOD, ADDRESS: "https://slack.com/api?x=1"}, {"settings.apiBaseUrl"}),
        ({**GOOD, ADDRESS: "https://:443/api"}, {"settings.apiBaseUrl"}),
        ({**GOOD, ADDRESS: "https://[::1"}, {"settings.apiBaseUrl"}),
        ({**GOOD, ADDRESS: "https://a:0"}, {"settings.apiBaseUrl"}),
    ],
)
def test_settings_that_cannot_be_right_are_named_and_not_repeated(
    slack: Line, settings: dict[str, str], named: set[str]
) -> None:
    answer = slack.put_settings(settings)
    assert (answer.status_code, answer.get_json()["code"]) == (422, "validation_failed")
    assert {error["name"] for error in answer.get_json()["errors"]} == named
    assert not [value for value in settings.values() if value in answer.text]
    assert rows(slack) == []


@pytest.mark.parametrize(
    ("body", "status"),
    [
        ({"settings": []}, 422),
        ({"settings": {"signingSecret": 5}}, 422),
        ({"settings": {f"s{n}": "x" for n in range(30)}}, 422),
        ({"settings": dict(GOOD), "overlapSeconds": -1}, 422),
        ({"settings": dict(GOOD), "overlapSeconds": 10**9}, 422),
        ({"settings": dict(GOOD), "signingSecret": "x"}, 400),
        ({}, 422),
    ],
)
def test_a_body_of_another_shape_is_refused(slack: Line, body: dict[str, Any], status: int) -> None:
    answer = slack.front.put(slack.settings_path, slack.administrator.authorization, json=body)
    assert answer.status_code == status, answer.text


def test_a_network_has_to_be_among_the_distributions(slack: Line) -> None:
    with slack.front.services.database.transaction() as session:
        update_distribution(
            session, actor=OPERATOR, distribution_id=slack.distribution_id, networks=["discord"]
        )
    answer = slack.put_settings()
    assert (answer.status_code, answer.get_json()["code"]) == (409, "network_not_routed")


def test_what_is_forgotten_takes_no_webhooks(slack: Line) -> None:
    slack.put_settings()
    body = slack.stand_in.message(slack.stand_in.keep(PNG))
    assert slack.send(body).status_code == 200
    remove = slack.front.delete(slack.settings_path, slack.administrator.authorization)
    assert (remove.status_code, rows(slack), read(slack)) == (204, [], 404)
    assert slack.send(body).status_code == 401
    assert slack.front.delete(slack.settings_path, slack.administrator.authorization).status_code == 404


def test_settings_deleted_while_a_webhook_is_received_refuse_it(
    slack: Line, monkeypatch: pytest.MonkeyPatch
) -> None:
    slack.put_settings()
    reached = []

    def reach(name: str) -> None:
        if name == "webhook.verified":
            reached.append(name)
            statement = text("DELETE FROM network_settings WHERE distribution_id = :id")
            with slack.front.services.database.transaction() as session:
                session.execute(statement, {"id": slack.distribution_id})

    monkeypatch.setattr(failpoints, "hit", reach)
    answer = slack.send(slack.stand_in.message(slack.stand_in.keep(PNG)))
    assert reached
    assert (answer.status_code, slack.imports()) == (401, [])


def test_every_change_is_on_record_without_a_value(slack: Line) -> None:
    slack.put_settings()
    slack.front.delete(slack.settings_path, slack.administrator.authorization)
    recorded = acts_of(slack)
    assert [(row.action, row.details["network"]) for row in recorded] == [
        ("distribution.network_set", "slack"),
        ("distribution.network_removed", "slack"),
    ]
    assert recorded[0].details["settings"] == "botToken, signingSecret"
    assert not [value for value in GOOD.values() if value in json.dumps([row.details for row in recorded])]


def test_concurrent_network_setups_are_serialized(slack: Line) -> None:
    def put(number: int) -> int:
        client = slack.front.app.test_client()
        body = {"settings": {**GOOD, "botToken": f"token-{number}-" * 4}}
        headers = {"Authorization": slack.administrator.authorization}
        return client.put(slack.settings_path, json=body, headers=headers).status_code

    with ThreadPoolExecutor(4) as pool:
        assert set(pool.map(put, range(12))) == {200}
    assert len(rows(slack)) == 2
