"""A flow of networks: the installation of an app in a workspace, which a user restarts if it did not end."""

from urllib.parse import parse_qs, urlsplit
from uuid import uuid4

from werkzeug.test import TestResponse

from tests.proof.flows import Flow, State
from tests.proof.world import World
from tests.support.files.file_requests import succeed
from tests.support.networks.slack import CLIENT_ID, CLIENT_SECRET
from tests.web.media.webhook_senders import open_line

_ROUTED = "SELECT account, target_distribution_id::text FROM network_accounts WHERE distribution_id = %(id)s"
_ACTS = "SELECT count(*) FROM audit_events WHERE resource_id = %(id)s AND action = %(action)s"


def _app(world: World) -> State:
    """Create a distribution with a Slack app, and another that is to receive messages of a workspace."""
    app = open_line(world.front, world.slack)
    other = open_line(world.front, world.slack, organization_id=app.organization_id)
    client = {"clientId": CLIENT_ID, "clientSecret": CLIENT_SECRET}
    succeed(app.put_settings({**world.slack.settings, **client}))
    return {"app": app, "other": other, "team": uuid4().hex, "answers": []}


def _install(world: World, state: State) -> TestResponse:
    """Begin, agree at Slack, and return. The state and the code can each be used once."""
    app, target = state["app"], {"targetDistributionId": str(state["other"].distribution_id)}
    begun = world.front.post(
        f"{app.settings_path}/installations", app.administrator.authorization, json=target
    )
    if begun.status_code >= 500:
        return begun
    (proof,) = parse_qs(urlsplit(succeed(begun)["authorizeUrl"]).query)["state"]
    agreed = {"state": proof, "code": world.slack.agree(state["team"])}
    answer = world.front.get(f"{app.path}/installed", query_string=agreed)
    if answer.status_code < 500:
        state["answers"].append(answer.status_code)
    return answer


def _require_installed(world: World, state: State) -> None:
    app, other = str(state["app"].distribution_id), str(state["other"].distribution_id)
    assert {*state["answers"]} == {200}
    assert world.sql(_ROUTED, id=app) == [(state["team"], other)]
    assert world.sql(_ACTS, id=app, action="distribution.network_account_set") == [(1,)]


FLOWS = (Flow(name="installation of an app", prepare=_app, steps=(_install,), require=_require_installed),)
