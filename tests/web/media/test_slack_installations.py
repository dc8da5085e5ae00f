"""An administrator starts to install a Slack app, a person consents at Slack, and the workspace is routed.

Slack is a real server; slack_sdk defines the address, and exchanges codes as the product does.
"""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

import pytest
from slack_sdk import WebClient
from slack_sdk.errors import SlackApiError
from slack_sdk.oauth import AuthorizeUrlGenerator
from werkzeug.test import TestResponse

from shared.encryption import Encryption
from shared.errors import PermissionDenied
from shared.identity.access.authorization import OPERATOR
from shared.identity.access.callers import Executor, ExecutorKind
from shared.identity.access.roles import Role
from shared.identity.credentials.api_keys import revoke_api_key
from shared.media.network_settings import get_credentials
from shared.media.network_setup.slack_installations import begin_installation
from shared.media.networks.slack_installation import SCOPES
from tests.support import networks
from tests.support.data.identity import Person
from tests.support.data.media_samples import PNG
from tests.support.networks.serving import Asked, Reply, say
from tests.support.networks.slack import BOT_TOKEN, CLIENT_ID, CLIENT_SECRET
from tests.support.web.web_process import LOCAL_EGRESS, Front
from tests.web.media.conftest import fetch, sql
from tests.web.media.webhook_senders import Line, open_line

CLIENT = {"clientId": CLIENT_ID, "clientSecret": CLIENT_SECRET}


@pytest.fixture(scope="module")
def front_settings() -> Mapping[str, object]:
    return LOCAL_EGRESS


@dataclass(frozen=True, kw_only=True)
class Scene:
    """A distribution with an app of Slack's, another of the same organization, and who owns both."""

    front: Front
    slack: networks.SlackStandIn
    app: Line
    other: Line
    owner: Person

    def begin(self, **changes: Any) -> TestResponse:
        target = changes.get("target", self.other).distribution_id
        by = changes.get("by", self.owner).authorization
        path = f"{self.app.settings_path}/installations"
        return self.front.post(path, by, json={"targetDistributionId": str(target)})

    def state(self, **changes: Any) -> str:
        begun = self.begin(**changes)
        assert begun.status_code == 200, begun.text
        query = urlsplit(str(begun.get_json()["authorizeUrl"])).query
        return dict(parse_qsl(query))["state"]

    def come_back(self, line: Line | None = None, **query: str) -> TestResponse:
        return self.front.get(f"{(line or self.app).path}/installed", query_string=query)

    def token_of(self, line: Line) -> str:
        with self.front.services.database.autocommit() as session:
            encryption = Encryption(self.front.settings)
            found = get_credentials(session, encryption, line.distribution_id, "slack")
        return str(found["botToken"])

    def exchanged(self) -> list[Asked]:
        """What was asked of Slack to exchange codes for tokens."""
        return [asked for asked in self.slack.asked if asked.path == "/api/oauth.v2.access"]

    def routes(self) -> list[tuple[str, str]]:
        listed = self.front.get(f"{self.app.settings_path}/accounts", self.owner.authorization).get_json()
        return [(one["account"], one["targetDistributionId"]) for one in listed["accounts"]]

    def refuse(self, answer: TestResponse, status: int, code: str) -> None:
        assert (answer.status_code, answer.get_json()["code"]) == (status, code)
        assert self.routes() == []
        assert self.token_of(self.other) == BOT_TOKEN


@pytest.fixture
def scene(front: Front) -> Iterator[Scene]:
    with networks.SlackStandIn() as slack:
        app = open_line(front, slack)
        other = open_line(front, slack, organization_id=app.organization_id)
        assert app.put_settings({**slack.settings, **CLIENT}).status_code == 200
        owner = front.identity.person(app.organization_id, Role.WORKSPACE_OWNER)
        yield Scene(front=front, slack=slack, app=app, other=other, owner=owner)


def test_a_workspace_that_agrees_is_received_for_with_its_own_token(scene: Scene) -> None:
    begun = scene.begin().get_json()
    query = dict(parse_qsl(urlsplit(begun["authorizeUrl"]).query))
    redirect_uri = f"{scene.app.url}/installed"
    expected = AuthorizeUrlGenerator(
        client_id=CLIENT_ID,
        scopes=SCOPES,
        redirect_uri=redirect_uri,
        authorization_url=f"{scene.slack.url}/oauth/v2/authorize",
    ).generate(query["state"])
    wanted = dict(parse_qsl(urlsplit(expected).query))
    assert {name: wanted[name] for name in query} == query
    assert urlsplit(expected)[:3] == urlsplit(begun["authorizeUrl"])[:3]

    answer = scene.come_back(state=query["state"], code=scene.slack.agree("T9"))
    assert (answer.status_code, answer.mimetype) == (200, "text/plain"), answer.text
    assert scene.routes() == [("T9", str(scene.other.distribution_id))]
    assert scene.token_of(scene.other).startswith("xoxb-T9-")
    assert scene.token_of(scene.app) == BOT_TOKEN
    file_id = scene.slack.keep(PNG)
    told = scene.slack.event(file_id) | {"team_id": "T9"}
    assert scene.app.send(json.dumps(told).encode()).status_code == 200
    fetch(scene.front)
    assert [(one.attachment_id, one.state) for one in scene.other.imports()] == [(file_id, "Stored")]
    (sent,) = scene.exchanged()
    assert dict(parse_qsl(sent.body.decode()))["redirect_uri"] == redirect_uri


def test_installation_for_its_own_distribution_keeps_its_other_settings(scene: Scene) -> None:
    answer = scene.come_back(state=scene.state(target=scene.app), code=scene.slack.agree("T9"))
    assert answer.status_code == 200, answer.text
    assert scene.token_of(scene.app).startswith("xoxb-T9-")
    assert scene.begin().status_code == 200
    assert scene.app.send(scene.slack.message(scene.slack.keep(PNG))).status_code == 200


def test_the_stand_in_answers_slacks_own_client_as_it_answers_the_product(scene: Scene) -> None:
    client = WebClient(base_url=f"{scene.slack.url}/api/")
    code = scene.slack.agree("T9")
    answer = client.oauth_v2_access(client_id=CLIENT_ID, client_secret=CLIENT_SECRET, code=code)
    assert answer["team"]["id"] == "T9"
    with pytest.raises(SlackApiError, match="invalid_code"):
        client.oauth_v2_access(client_id=CLIENT_ID, client_secret=CLIENT_SECRET, code=code)


def test_state_is_valid_once_unaltered_and_for_its_distribution(scene: Scene) -> None:
    state, code = scene.state(), scene.slack.agree("T9")
    sealed = Encryption(scene.front.settings).encrypt
    for wrong in ("", "é", state[:-4], "A" * 5000, sealed("{}").decode(), sealed("null").decode()):
        scene.refuse(scene.come_back(state=wrong, code=code), 401, "signature_invalid")
    scene.refuse(scene.come_back(scene.other, state=state, code=code), 401, "signature_invalid")
    scene.refuse(scene.come_back(state=state, error="access_denied"), 403, "installation_refused")
    scene.refuse(scene.come_back(state=state, code=code), 401, "signature_invalid")
    assert scene.exchanged() == []


def test_a_state_is_no_good_at_another_distribution_that_could_take_it(scene: Scene) -> None:
    assert scene.other.put_settings({**scene.slack.settings, **CLIENT}).status_code == 200
    answer = scene.come_back(scene.other, state=scene.state(), code=scene.slack.agree("T9"))
    scene.refuse(answer, 401, "signature_invalid")
    assert scene.exchanged() == []


def test_a_state_that_has_expired_is_refused(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr("shared.media.network_setup.slack_installations.LIFETIME", timedelta(seconds=-1))
        state = scene.state()
    scene.refuse(scene.come_back(state=state, code=scene.slack.agree("T9")), 401, "signature_invalid")


def test_a_state_is_as_good_as_the_key_that_asked_for_it(scene: Scene) -> None:
    state = scene.state()
    assert scene.owner.api_key_id is not None
    with scene.front.services.database.transaction() as session:
        revoke_api_key(session, actor=OPERATOR, key_id=scene.owner.api_key_id)
    answer = scene.come_back(state=state, code=scene.slack.agree("T9"))
    assert (answer.status_code, answer.get_json()["code"]) == (401, "signature_invalid")
    assert scene.token_of(scene.other) == BOT_TOKEN
    assert scene.exchanged() == []


def test_who_may_not_administer_any_more_installs_nothing(scene: Scene) -> None:
    state = scene.state()
    sql(
        scene.front,
        "UPDATE memberships SET role = 'Member' WHERE user_id = :id",
        id=scene.owner.user_id,
    )
    answer = scene.come_back(state=state, code=scene.slack.agree("T9"))
    assert (answer.status_code, answer.get_json()["code"]) == (401, "signature_invalid")
    assert scene.token_of(scene.other) == BOT_TOKEN
    assert scene.exchanged() == []


def test_whoever_holds_the_database_begins_by_command(scene: Scene) -> None:
    with scene.front.services.database.transaction() as session:
        begun = begin_installation(
            session,
            scene.front.settings,
            actor=OPERATOR,
            distribution_id=scene.app.distribution_id,
            target_id=scene.other.distribution_id,
        )
    state = dict(parse_qsl(urlsplit(begun.authorize_url).query))["state"]
    assert scene.come_back(state=state, code=scene.slack.agree("T9")).status_code == 200
    assert scene.routes() == [("T9", str(scene.other.distribution_id))]


def test_who_administers_without_a_credential_begins_nothing_that_ends_as_an_operators(scene: Scene) -> None:
    user = Executor(kind=ExecutorKind.USER, id=uuid4())
    without = replace(OPERATOR, caller=replace(OPERATOR.caller, executor=user))
    with scene.front.services.database.transaction() as session, pytest.raises(PermissionDenied):
        begin_installation(
            session,
            scene.front.settings,
            actor=without,
            distribution_id=scene.app.distribution_id,
            target_id=scene.other.distribution_id,
        )


@pytest.mark.parametrize(
    "reply",
    [
        say({"ok": False, "error": "bad_client_secret"}),
        say({"ok": True, "team": {"id": "T9"}, "access_token": "xoxp-" + "u" * 32, "token_type": "user"}),
        say({"ok": True, "team": None, "access_token": "xoxb-" + "u" * 32, "token_type": "bot"}),
        say(
            {
                "ok": True,
                "team": {"id": "T9"},
                "access_token": "xoxe.xoxb-" + "u" * 32,
                "token_type": "bot",
                "expires_in": 43200,
            }
        ),
        say({"ok": True, "team": {"id": "T9"}, "access_token": "short", "token_type": "bot"}),
        Reply(status=500),
        Reply(body=b"<html>"),
    ],
    ids=["refused", "user token", "whole enterprise", "token that ends", "no token", "error", "page"],
)
def test_what_is_no_token_of_a_workspace_is_refused(scene: Scene, reply: Reply) -> None:
    state = scene.state()
    scene.slack.answers["/api/oauth.v2.access"] = reply
    scene.refuse(scene.come_back(state=state, code="1"), 403, "installation_refused")


def test_only_who_manages_both_distributions_begins(front: Front, scene: Scene) -> None:
    foreign = open_line(front, scene.slack)
    member = front.identity.person(scene.app.organization_id, Role.MEMBER)
    assert scene.begin(target=foreign).status_code == 404
    assert scene.begin(by=member).status_code == 403
    assert scene.app.put_settings().status_code == 200
    refused = scene.begin()
    assert refused.get_json()["code"] == "app_client_missing"
