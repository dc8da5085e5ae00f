"""Install a Slack app in a workspace: OAuth 2.0 in Slack's form (`oauth.v2.access`).

Slack's deviations: scopes are separated by commas, a response with status 200 may contain `ok: false`, and the token
is the workspace's bot token.
"""

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import quote, urlencode

from shared.egress.errors import EgressError
from shared.errors import DomainError
from shared.media.errors import InstallationRefused
from shared.media.networks.base import Ask
from shared.media.networks.payloads import as_id, as_object, as_text, read_object
from shared.media.networks.slack import Slack
from shared.media.networks.webhooks import Credentials

SCOPES = ("files:read", "channels:history", "groups:history", "im:history", "mpim:history")
"""Scopes for fetching files and receiving messages of each kind of channel."""
_TOKEN = next(setting for setting in Slack.settings if setting.name == "botToken")


@dataclass(frozen=True, slots=True, kw_only=True)
class InstalledWorkspace:
    """A workspace in which the app was installed, and its bot token."""

    team_id: str
    bot_token: str = field(repr=False)


def authorize_url(credentials: Credentials, *, redirect_uri: str, state: str) -> str:
    """Return the address at Slack where a person of the workspace consents."""
    parameters = {
        "client_id": credentials["clientId"],
        "scope": ",".join(SCOPES),
        "redirect_uri": redirect_uri,
        "state": state,
    }
    # The consent page is on the same host as the API, without the path /api.
    site = credentials["apiBaseUrl"].removesuffix("/api")
    return f"{site}/oauth/v2/authorize?{urlencode(parameters)}"


def exchange(credentials: Credentials, *, redirect_uri: str, code: str, ask: Ask) -> InstalledWorkspace:
    """Exchange a code for the workspace's token. Raises InstallationRefused."""
    # Percent-encoded before base64, as RFC 6749 (2.3.1) requires.
    pair = f"{quote(credentials['clientId'], safe='')}:{quote(credentials['clientSecret'], safe='')}"
    headers: Mapping[str, str] = {
        "Authorization": f"Basic {base64.b64encode(pair.encode()).decode()}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    body = urlencode({"code": code, "redirect_uri": redirect_uri}).encode()
    url = f"{credentials['apiBaseUrl']}/oauth.v2.access"
    try:
        answer = read_object(ask(url, headers, method="POST", body=body))
    except (EgressError, DomainError) as error:
        raise InstallationRefused from error
    return _read(answer)


def _read(answer: Mapping[str, object]) -> InstalledWorkspace:
    """Return the workspace and its token. An expiring token is refused, because nothing would renew it."""
    team_id, token = as_id(as_object(answer.get("team")).get("id")), as_text(answer.get("access_token"))
    is_usable = answer.get("ok") is True and answer.get("token_type") == "bot" and "expires_in" not in answer
    if not is_usable or team_id is None or token is None or not _TOKEN.pattern.fullmatch(token):
        raise InstallationRefused
    return InstalledWorkspace(team_id=team_id, bot_token=token)
