"""Each network's own way to locate a file; its credentials reach no other server."""

import json
import time
from collections.abc import Mapping
from functools import partial
from typing import Any

import pytest

from shared.egress.errors import MediaTooLarge, SourceStatusError
from shared.egress.fetch import FetchLimits, ask, fetch
from shared.egress.policy import EgressPolicy
from shared.media.attachments import Attachment, Source
from shared.media.errors import SourceBusy, SourceElsewhere, SourceGone, SourceRefused, SourceUnreadable
from shared.media.networks.registry import NETWORKS
from shared.media.networks.webhooks import Credentials
from tests.shared.media.networks.requests import network_of, signed
from tests.support import networks
from tests.support.data.media_samples import PNG
from tests.support.networks.serving import Reply, say
from tests.support.networks.telegram import BOT_TOKEN

POLICY = EgressPolicy(allow_private=True, allow_http=True)
LIMITS = FetchLimits(maximum_bytes=1 << 20, deadline_seconds=10, idle_seconds=5)


@pytest.fixture(params=networks.STAND_INS, ids=lambda make: make.name)
def network(
    request: pytest.FixtureRequest, running: Mapping[type[networks.StandIn], networks.StandIn]
) -> networks.StandIn:
    return reset(running[request.param])


def reset(stand_in: networks.StandIn) -> networks.StandIn:
    stand_in.answers.clear()
    stand_in.asked.clear()
    return stand_in


@pytest.fixture
def slack(running: Mapping[type[networks.StandIn], networks.StandIn]) -> networks.StandIn:
    return reset(running[networks.SlackStandIn])


@pytest.fixture
def telegram(running: Mapping[type[networks.StandIn], networks.StandIn]) -> networks.StandIn:
    return reset(running[networks.TelegramStandIn])


@pytest.fixture
def whatsapp(running: Mapping[type[networks.StandIn], networks.StandIn]) -> networks.StandIn:
    return reset(running[networks.WhatsAppStandIn])


@pytest.fixture
def twilio(running: Mapping[type[networks.StandIn], networks.StandIn]) -> networks.StandIn:
    return reset(running[networks.TwilioStandIn])


@pytest.fixture
def discord(running: Mapping[type[networks.StandIn], networks.StandIn]) -> networks.DiscordStandIn:
    stand_in = reset(running[networks.DiscordStandIn])
    assert isinstance(stand_in, networks.DiscordStandIn)
    return stand_in


def told(stand_in: networks.StandIn) -> Attachment:
    """Return an attachment as the web process parses it."""
    (found,) = network_of(stand_in).attachments(signed(stand_in, stand_in.message(stand_in.keep(PNG))))
    return found


def locate(stand_in: networks.StandIn, attachment: Attachment, **changes: str) -> Source:
    defaults = {one.name: one.default for one in network_of(stand_in).settings if one.default}
    credentials: Credentials = {**defaults, **stand_in.settings, **changes}
    return network_of(stand_in).locate(attachment, credentials, partial(ask, policy=POLICY))


def download(source: Source) -> tuple[bytes, str | None]:
    with fetch(
        source.url,
        policy=POLICY,
        limits=LIMITS,
        headers=source.headers,
        trusted_hosts=source.trusted_hosts,
    ) as fetched:
        return b"".join(fetched.chunks()), fetched.media_type


def test_attachment_of_a_webhook_is_located_and_opened(network: networks.StandIn) -> None:
    source = locate(network, told(network))
    assert download(source) == (PNG.content, "image/png")
    assert source.size_bytes in (None, len(PNG.content))


def test_no_secret_is_part_of_how_a_source_looks(network: networks.StandIn) -> None:
    source = locate(network, told(network))
    assert not [value for value in network.settings.values() if value in repr(source) and "://" not in value]


def test_a_file_that_was_deleted_is_gone(network: networks.StandIn) -> None:
    attachment = told(network)
    network.kept.clear()
    with pytest.raises((SourceGone, SourceStatusError)) as gone:
        download(locate(network, attachment))
    if isinstance(gone.value, SourceStatusError):
        assert gone.value.status == 404


@pytest.mark.parametrize("make", [networks.SlackStandIn, networks.TelegramStandIn, networks.WhatsAppStandIn])
def test_refused_credentials_have_distinct_errors(
    make: type[networks.StandIn], running: Mapping[type[networks.StandIn], networks.StandIn]
) -> None:
    stand_in = reset(running[make])
    wrong = {name: value[:-4] + "nope" for name, value in stand_in.settings.items() if "Token" in name}
    with pytest.raises(SourceRefused):
        locate(stand_in, told(stand_in), **wrong)


@pytest.mark.parametrize("make", [networks.SlackStandIn, networks.TelegramStandIn, networks.WhatsAppStandIn])
@pytest.mark.parametrize(
    "body", [b"", b"<html>", b"[]", b'{"ok": true}', b'{"url": 5, "result": {}, "ok": true}']
)
def test_response_without_content_is_unreadable(
    make: type[networks.StandIn], body: bytes, running: Mapping[type[networks.StandIn], networks.StandIn]
) -> None:
    stand_in = reset(running[make])
    attachment = told(stand_in)
    locate(stand_in, attachment)
    stand_in.answers[stand_in.paths()[-1]] = Reply(body=body)
    with pytest.raises(SourceUnreadable):
        locate(stand_in, attachment)


# Slack


def test_slacks_token_goes_along_a_redirect_within_slack(slack: networks.StandIn) -> None:
    download(locate(slack, told(slack)))
    assert [asked.headers.get("authorization") is not None for asked in slack.asked] == [True, True, True]
    assert slack.paths()[-1].startswith("/files-edge/")


def test_slacks_login_page_is_no_media_unless_the_file_is_a_page(slack: networks.StandIn) -> None:
    attachment = told(slack)
    assert locate(slack, attachment).refused_media_types == {"text/html"}
    page = {"id": "F1", "mimetype": "text/html", "mode": "hosted", "url_private": f"{slack.url}/x"}
    slack.answers["/api/files.info"] = say({"ok": True, "file": page})
    assert locate(slack, attachment).refused_media_types == frozenset()


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ({"ok": False, "error": "file_deleted"}, SourceGone),
        ({"ok": False, "error": "missing_scope", "needed": "files:read"}, SourceRefused),
        ({"ok": False, "error": "ratelimited"}, SourceBusy),
        ({"ok": False, "error": "something_new"}, SourceUnreadable),
        ({"ok": False, "error": ["something_new"]}, SourceUnreadable),
        ({"ok": True, "file": {"id": "F1", "mode": {}}}, SourceUnreadable),
        ({"ok": True, "file": {"id": "F1", "mode": "tombstone"}}, SourceGone),
        ({"ok": True, "file": {"id": "F1", "file_access": "file_not_found"}}, SourceGone),
        ({"ok": True, "file": {"id": "F1", "file_access": "access_denied"}}, SourceRefused),
        (
            {"ok": True, "file": {"is_external": True, "url_private": "https://drive.example/"}},
            SourceElsewhere,
        ),
        ({"ok": True, "file": {"url_private": "https://slack.com.evil.example/x"}}, SourceElsewhere),
        ({"ok": True, "file": {"url_private": "https://evilslack.com/x"}}, SourceElsewhere),
        ({"ok": True, "file": {"url_private": "https://[/"}}, SourceElsewhere),
    ],
)
def test_slacks_answers_are_understood(
    slack: networks.StandIn, answer: dict[str, Any], error: type[Exception]
) -> None:
    attachment = told(slack)
    slack.answers["/api/files.info"] = say(answer)
    with pytest.raises(error):
        locate(slack, attachment)


def test_request_to_an_overloaded_slack_is_retried(slack: networks.StandIn) -> None:
    attachment = told(slack)
    slack.answers["/api/files.info"] = Reply(status=429, headers={"Retry-After": "30"})
    with pytest.raises(SourceStatusError) as busy:
        locate(slack, attachment)
    assert (busy.value.is_transient, busy.value.retry_after_seconds) == (True, 30)


@pytest.mark.parametrize(
    "url", ["https://files.slack.com/x", "https://a.slack-edge.com/x", "https://slack.com/x"]
)
def test_slacks_own_hosts_are_trusted(slack: networks.StandIn, url: str) -> None:
    attachment = told(slack)
    slack.answers["/api/files.info"] = say({"ok": True, "file": {"url_private": url}})
    source = locate(slack, attachment)
    assert source.url == url
    assert {".slack.com", ".slack-edge.com"} < source.trusted_hosts


# Twilio


def test_twilios_credentials_stay_with_twilio(twilio: networks.StandIn) -> None:
    download(locate(twilio, told(twilio)))
    first, second = twilio.asked
    assert first.headers["authorization"].startswith("Basic ")
    assert "authorization" not in second.headers


def test_twilios_credentials_open_nothing_elsewhere(twilio: networks.StandIn) -> None:
    for url in (
        "https://media.example/x",
        "https://twilio.com.example/x",
        "https://api.twilio.com@evil.example/x",
    ):
        with pytest.raises(SourceElsewhere):
            locate(twilio, Attachment(message_id="m", attachment_id="a", location={"url": url}))


# Telegram


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (400, {"description": "Bad Request: file is too big"}, MediaTooLarge),
        (
            400,
            {"description": "Bad Request: wrong file_id or the file is temporarily unavailable"},
            SourceBusy,
        ),
        (400, {"description": "Bad Request: invalid file_id"}, SourceGone),
        (401, {"description": "Unauthorized"}, SourceRefused),
        (404, {"description": "Not Found"}, SourceRefused),
        (429, {"parameters": {"retry_after": 8}}, SourceBusy),
        (502, {}, SourceStatusError),
    ],
)
def test_telegrams_answers_are_understood(
    telegram: networks.StandIn, status: int, answer: dict[str, Any], error: type[Exception]
) -> None:
    attachment = told(telegram)
    telegram.answers[f"/bot{BOT_TOKEN}/getFile"] = say({"ok": False, "error_code": status, **answer}, status)
    with pytest.raises(error) as refused:
        locate(telegram, attachment)
    assert BOT_TOKEN not in str(refused.value)
    if status == 429:
        assert getattr(refused.value, "retry_after_seconds", None) == 8


def test_ones_own_telegram_server_names_paths_on_its_disk(telegram: networks.StandIn) -> None:
    path = f"/var/lib/telegram-bot-api/{BOT_TOKEN}/photos/file 0.jpg"
    attachment = told(telegram)
    telegram.answers[f"/bot{BOT_TOKEN}/getFile"] = say({"ok": True, "result": {"file_path": path}})
    assert locate(telegram, attachment).url == f"{telegram.url}/file/bot{BOT_TOKEN}/photos/file%200.jpg"


# WhatsApp


def test_whatsapps_address_comes_with_its_digest_and_needs_the_token(whatsapp: networks.StandIn) -> None:
    source = locate(whatsapp, told(whatsapp))
    assert (source.size_bytes, source.sha256) == (len(PNG.content), told(whatsapp).sha256)
    with pytest.raises(SourceStatusError) as refused:
        download(Source(url=source.url))
    assert refused.value.status == 401


@pytest.mark.parametrize(
    ("status", "answer", "error"),
    [
        (401, {"code": 190}, SourceRefused),
        (403, {"code": 10}, SourceRefused),
        (400, {"code": 100, "error_subcode": 33}, SourceGone),
        (404, {}, SourceGone),
        (400, {"code": 4}, SourceBusy),
        (500, {"code": 2}, SourceBusy),
        (503, {}, SourceStatusError),
        (400, {"code": [190]}, SourceStatusError),
    ],
)
def test_whatsapps_answers_are_understood(
    whatsapp: networks.StandIn, status: int, answer: dict[str, Any], error: type[Exception]
) -> None:
    attachment = told(whatsapp)
    whatsapp.answers[f"/v24.0/{attachment.attachment_id}"] = say({"error": answer}, status)
    with pytest.raises(error):
        locate(whatsapp, attachment)


def test_whatsapps_token_goes_to_meta_alone(whatsapp: networks.StandIn) -> None:
    attachment = told(whatsapp)
    path = f"/v24.0/{attachment.attachment_id}"
    whatsapp.answers[path] = say({"url": "https://lookaside.fbsbx.com/whatsapp_business/attachments/?mid=1"})
    assert locate(whatsapp, attachment).headers["User-Agent"]
    whatsapp.answers[path] = say({"url": "https://evil.example/?mid=1"})
    with pytest.raises(SourceElsewhere):
        locate(whatsapp, attachment)


# Discord


def expired(discord: networks.DiscordStandIn, *, ago_seconds: float = 3600) -> Attachment:
    file_id = discord.keep(PNG)
    interaction = discord.interaction(file_id)
    attachments = interaction["data"]["resolved"]["attachments"]
    attachments[file_id] = discord.attachment(file_id, expires_at=time.time() - ago_seconds)
    (found,) = NETWORKS["discord"].attachments(signed(discord, json.dumps(interaction).encode()))
    return found


def test_a_link_of_discords_that_has_expired_is_renewed(discord: networks.DiscordStandIn) -> None:
    attachment = expired(discord)
    with pytest.raises(SourceStatusError):
        download(Source(url=attachment.location["url"]))
    source = locate(discord, attachment)
    assert source.headers == {}
    assert download(source) == (PNG.content, "image/png")


def test_a_link_of_discords_that_cannot_be_renewed_is_gone(discord: networks.DiscordStandIn) -> None:
    attachment = expired(discord)
    without_bot = {name: value for name, value in discord.settings.items() if name != "botToken"}
    with pytest.raises(SourceGone):
        NETWORKS["discord"].locate(attachment, without_bot, partial(ask, policy=POLICY))
    discord.answers["/api/v10/attachments/refresh-urls"] = say({"refreshed_urls": []})
    with pytest.raises(SourceGone):
        locate(discord, attachment)
    discord.answers.clear()
    with pytest.raises(SourceRefused):
        locate(discord, attachment, botToken="no longer")


def test_a_link_that_is_good_is_opened_without_asking(discord: networks.DiscordStandIn) -> None:
    locate(discord, told(discord))
    assert discord.asked == []


def test_expiring_discord_link_is_renewed(discord: networks.DiscordStandIn) -> None:
    """Discord's clock and this machine's may differ, so each side may find the link expired first."""
    without_bot = {name: value for name, value in discord.settings.items() if name != "botToken"}
    for ago_seconds in (-300, 300):
        attachment = expired(discord, ago_seconds=ago_seconds)
        assert locate(discord, attachment).url != attachment.location["url"]
        kept = NETWORKS["discord"].locate(attachment, without_bot, partial(ask, policy=POLICY))
        assert kept.url == attachment.location["url"]
