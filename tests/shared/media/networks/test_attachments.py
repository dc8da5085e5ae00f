"""Every attachment in a network's webhook is parsed, with ids that stay the same in repeated events."""

import hashlib
import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shared.media.attachments import Attachment
from shared.media.importing.descriptions import normalize
from shared.media.networks.registry import NETWORKS
from tests.shared.media.networks.requests import network_of, request, signed, stand_ins
from tests.support.data.media_samples import JPEG, MP4, OGG, PDF, PNG
from tests.support.networks import (
    DiscordStandIn,
    SlackStandIn,
    TelegramStandIn,
    TwilioStandIn,
    WhatsAppStandIn,
)
from tests.support.processes.collected_cases import found

Json = dict[str, Any]
FORM = {"Content-Type": "application/x-www-form-urlencoded"}


def read(network: str, payload: object) -> list[Attachment]:
    body = json.dumps(payload).encode()
    return list(NETWORKS[network].attachments(request(body, {"Content-Type": "application/json"})))


def ids(found: list[Attachment]) -> list[tuple[str, str]]:
    return [(one.message_id, one.attachment_id) for one in found]


# Slack


def test_slack_message_lists_all_its_files() -> None:
    slack = SlackStandIn()
    files = [slack.keep(PNG), slack.keep(PDF)]
    first, second = NETWORKS["slack"].attachments(signed(slack, slack.message(*files)))
    assert first == Attachment(
        message_id="C123ABC456:1730000000.000001",
        attachment_id=files[0],
        location={"fileId": files[0]},
        file_name="pixel.png",
        media_type="image/png",
        size_bytes=len(PNG.content),
        conversation_id="C123ABC456",
    )
    assert (second.attachment_id, second.media_type) == (files[1], "application/pdf")


@pytest.mark.parametrize(
    "file",
    [
        {"id": "F1", "mode": "tombstone"},
        {"id": "F1", "mode": "hidden_by_limit"},
        {"id": "F1", "mode": "external", "is_external": True, "url_private": "https://drive.example/x"},
        {"mode": "hosted"},
        "F1",
    ],
)
def test_a_file_that_slack_no_longer_or_never_had_is_none(file: object) -> None:
    payload = SlackStandIn().event()
    payload["event"]["files"] = [file]
    assert read("slack", payload) == []


@pytest.mark.parametrize("odd", [[], {}, 1, None, True, "hosted"])
def test_slack_file_of_an_unknown_mode_is_an_attachment(odd: object) -> None:
    payload = SlackStandIn().event()
    payload["event"]["files"] = [{"id": "F1", "mode": odd}]
    assert [one.attachment_id for one in read("slack", payload)] == ["F1"]


def test_slack_file_without_details_is_read_by_its_id() -> None:
    """Of Slack Connect: `file_access` is `check_file_info`."""
    payload = SlackStandIn().event()
    payload["event"]["files"] = [
        {
            "id": "F123ABC456",
            "mode": "file_access",
            "file_access": "check_file_info",
            "created": 0,
            "user": "",
        }
    ]
    (found,) = read("slack", payload)
    assert (found.location, found.file_name, found.size_bytes) == ({"fileId": "F123ABC456"}, None, None)


def test_an_edited_message_and_a_mention_tell_of_the_same_file() -> None:
    slack = SlackStandIn()
    payload = slack.event(slack.keep(PNG))
    event = payload["event"]
    (original,) = read("slack", payload)
    mention = {**payload, "event": {**event, "type": "app_mention"}}
    edited = {
        **payload,
        "event": {
            "type": "message",
            "subtype": "message_changed",
            "channel": event["channel"],
            "ts": "1730000099.000100",
            "message": {name: event[name] for name in ("type", "files", "user", "ts")},
        },
    }
    assert read("slack", mention) == read("slack", edited) == [original]


def test_a_file_that_was_shared_is_read_without_its_message() -> None:
    event = {
        "type": "file_shared",
        "channel_id": "C1",
        "file_id": "F1",
        "user_id": "U1",
        "file": {"id": "F1"},
        "event_ts": "1361482916.000003",
    }
    (found,) = read("slack", {"type": "event_callback", "event": event})
    assert (found.message_id, found.attachment_id, found.location) == ("C1:F1", "F1", {"fileId": "F1"})


@pytest.mark.parametrize("own", [{"app_id": "A123ABC456"}, {"bot_profile": {"app_id": "A123ABC456"}}])
def test_files_that_the_app_posts_itself_are_ignored(own: Json) -> None:
    slack = SlackStandIn()
    payload = slack.event(slack.keep(PNG))
    payload["event"] |= own
    assert read("slack", payload) == []


@pytest.mark.parametrize("event", [{"type": "message", "text": "hi"}, {"type": "reaction_added"}, {}, None])
def test_slack_event_without_files_has_no_attachments(event: object) -> None:
    assert read("slack", {"type": "event_callback", "event": event}) == []


# Twilio


def test_twilio_message_lists_all_its_media() -> None:
    twilio = TwilioStandIn()
    files = [twilio.keep(JPEG), twilio.keep(MP4)]
    first, second = NETWORKS["twilio"].attachments(signed(twilio, twilio.message(*files)))
    assert ids([first, second]) == [(f"MM{1:032x}", files[0]), (f"MM{1:032x}", files[1])]
    assert (first.media_type, second.media_type) == ("image/jpeg", "video/mp4")
    assert first.location["url"].startswith("https://api.twilio.com/2010-04-01/Accounts/AC")
    assert first.conversation_id == "whatsapp:+14158675310"


def test_twilios_media_without_an_id_are_counted() -> None:
    told = {
        "MessageSid": "SM1",
        "NumMedia": "2",
        "MediaUrl0": "https://a.example/x",
        "MediaUrl1": "https://a.example/y",
    }
    found = NETWORKS["twilio"].attachments(request(urlencode(told).encode(), FORM))
    assert ids(list(found)) == [("SM1", "0"), ("SM1", "1")]
    assert ids(read("twilio", told)) == [("SM1", "0"), ("SM1", "1")]


@pytest.mark.parametrize("count", ["0", "-1", "x", "9" * 30, None])
def test_twilios_count_is_believed_only_as_far_as_there_are_addresses(count: str | None) -> None:
    told = {"MessageSid": "SM1", "NumMedia": count} if count else {"MessageSid": "SM1"}
    assert list(NETWORKS["twilio"].attachments(request(urlencode(told).encode(), FORM))) == []


# Telegram


@pytest.mark.parametrize(
    "kind", ["message", "edited_message", "channel_post", "edited_channel_post", "business_message"]
)
def test_telegram_post_of_any_kind_lists_its_file(kind: str) -> None:
    telegram = TelegramStandIn()
    file_id = telegram.keep(PDF)
    assert read("telegram", {"update_id": 1, kind: telegram.post(file_id, message="7")}) == [
        Attachment(
            message_id="-1001111111:7",
            attachment_id=file_id[-12:],
            location={"fileId": file_id},
            file_name="page.pdf",
            media_type="application/pdf",
            size_bytes=len(PDF.content),
            conversation_id="-1001111111",
        )
    ]


def post(**media: object) -> Json:
    return {"update_id": 1, "message": {"message_id": 5, "chat": {"id": 77}, **media}}


FILE = {"file_id": "id", "file_unique_id": "unique"}


@pytest.mark.parametrize(
    ("media", "media_type"),
    [
        ({"document": FILE}, None),
        ({"document": {**FILE, "mime_type": "text/csv"}}, "text/csv"),
        ({"voice": FILE}, "audio/ogg"),
        ({"audio": {**FILE, "mime_type": "audio/mpeg"}}, "audio/mpeg"),
        ({"video": FILE}, "video/mp4"),
        ({"video_note": {**FILE, "length": 240}}, "video/mp4"),
        ({"animation": FILE, "document": FILE}, "video/mp4"),
        ({"sticker": {**FILE, "is_animated": False, "is_video": False}}, "image/webp"),
        ({"sticker": {**FILE, "is_animated": True, "is_video": False}}, "application/x-tgsticker"),
        ({"sticker": {**FILE, "is_animated": False, "is_video": True}}, "video/webm"),
        ({"paid_media": {"star_count": 1, "paid_media": [{"type": "video", "video": FILE}]}}, "video/mp4"),
        ({"paid_media": {"star_count": 1, "paid_media": [{"type": "photo", "photo": [FILE]}]}}, "image/jpeg"),
    ],
)
def test_each_kind_of_telegrams_files_has_its_type(media: Json, media_type: str | None) -> None:
    (found,) = read("telegram", post(**media))
    assert ids([found]) == [("77:5", "unique")]
    assert found.media_type == media_type


def test_the_largest_of_a_photos_sizes_is_taken() -> None:
    sizes = [
        {"file_id": name, "file_unique_id": name, "width": width, "height": width, "file_size": width}
        for name, width in (("s", 90), ("y", 1280), ("m", 320))
    ]
    (found,) = read("telegram", post(photo=sizes))
    assert (found.attachment_id, found.media_type, found.size_bytes) == ("y", "image/jpeg", 1280)


@pytest.mark.parametrize(
    "update", [{"callback_query": {}}, post(text="hi"), post(photo=[]), {"message": {"photo": 1}}]
)
def test_update_without_files_has_no_attachments(update: Json) -> None:
    assert read("telegram", update) == []


# WhatsApp


def test_whatsapp_webhook_lists_the_media_of_all_its_messages() -> None:
    whatsapp = WhatsAppStandIn()
    files = [whatsapp.keep(sample) for sample in (PNG, OGG, MP4, PDF)]
    found = NETWORKS["whatsapp"].attachments(signed(whatsapp, whatsapp.message(*files, message="m")))
    assert ids(list(found)) == [(f"wamid.m.{number}", file_id) for number, file_id in enumerate(files)]
    assert [one.media_type for one in found] == ["image/png", "audio/ogg", "video/mp4", "application/pdf"]
    assert [one.file_name for one in found] == [None, None, None, "page.pdf"]
    assert found[0].sha256 == hashlib.sha256(PNG.content).digest()
    assert {one.conversation_id for one in found} == {"16505551234"}


def test_several_messages_of_one_change_and_stickers_are_read() -> None:
    whatsapp = WhatsAppStandIn()
    sticker = {
        "from": "1",
        "id": "wamid.s",
        "type": "sticker",
        "sticker": {"id": "5", "mime_type": "image/webp", "sha256": "0" * 64},
    }
    value = whatsapp.value(whatsapp.media_message(whatsapp.keep(PNG), "wamid.a"), sticker)
    found = read("whatsapp", {"entry": [{"changes": [{"field": "messages", "value": value}]}]})
    assert [one.message_id for one in found] == ["wamid.a", "wamid.s"]
    assert found[1].sha256 == bytes(32)


@pytest.mark.parametrize(
    "change",
    [
        {"field": "messages", "value": {"statuses": [{"id": "wamid.x", "status": "read"}]}},
        {
            "field": "messages",
            "value": {"messages": [{"id": "wamid.x", "type": "text", "text": {"body": "hi"}}]},
        },
        {"field": "smb_message_echoes", "value": {"messages": [{"id": "wamid.x", "image": {"id": "1"}}]}},
        {"field": "messages"},
        "messages",
    ],
)
def test_whatsapp_webhook_without_inbound_media_has_no_attachments(change: object) -> None:
    assert read("whatsapp", {"entry": [{"changes": [change]}]}) == []


# Discord


def test_interaction_lists_its_uploaded_files() -> None:
    discord = DiscordStandIn()
    files = [discord.keep(PNG), discord.keep(PDF)]
    found = list(NETWORKS["discord"].attachments(signed(discord, discord.message(*files))))
    assert ids(found) == [("846462639134605301", file_id) for file_id in files]
    assert (found[0].file_name, found[0].media_type) == ("pixel.png", "image/png")
    assert found[0].size_bytes == len(PNG.content)
    assert found[0].location["url"].startswith("https://cdn.discordapp.com/")
    assert found[0].conversation_id == "645027906669510667"


def test_message_command_lists_that_messages_files() -> None:
    discord = DiscordStandIn()
    file_id = discord.keep(PNG)
    interaction = discord.interaction()
    message = {"id": "99", "channel_id": "7", "attachments": [discord.attachment(file_id)]}
    interaction["data"] = {"type": 3, "target_id": "99", "resolved": {"messages": {"99": message}}}
    (found,) = read("discord", interaction)
    assert (found.message_id, found.attachment_id, found.conversation_id) == ("99", file_id, "7")


def test_event_lists_its_messages_files() -> None:
    discord = DiscordStandIn()
    file_id = discord.keep(PNG)
    data = {"id": "99", "lobby_id": "7", "attachments": [discord.attachment(file_id)]}
    event = {"version": 1, "type": 1, "event": {"type": "LOBBY_MESSAGE_CREATE", "data": data}}
    (found,) = read("discord", event)
    assert (found.message_id, found.attachment_id, found.conversation_id) == ("99", file_id, "7")


# Of every network


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=20),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
known = [
    *(
        "event",
        "type",
        "files",
        "id",
        "ts",
        "channel",
        "entry",
        "changes",
        "value",
        "messages",
        "field",
        "image",
    ),
    *(
        "message",
        "photo",
        "document",
        "file_id",
        "chat",
        "message_id",
        "data",
        "resolved",
        "attachments",
        "url",
    ),
    *("mode", "subtype", "bot_profile", "sticker", "paid_media", "challenge", "width"),
]
shaped = st.recursive(
    json_values | st.sampled_from(["messages", "message", "file_shared", "https://[", "\x00", "\ud800"]),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(known), inner, max_size=6),
    max_leaves=20,
)


@settings(max_examples=150)
@given(payload=shaped)
def test_any_payload_is_parsed_into_storable_values(payload: object) -> None:
    for name, network in NETWORKS.items():
        body = json.dumps(payload).encode()
        for attachment in read(name, payload):
            normalize(attachment)
        network.respond(request(body, {}), {})


@pytest.mark.parametrize(
    "body", [b"", b"\xff", b"[" * 100_000, b"1" * 5000, b'"x"', b"null", b'{"a":1', b"\xef\xbb\xbf{}"]
)
def test_body_that_is_no_object_has_no_attachments(body: bytes) -> None:
    for stand_in in found(stand_ins()):
        sent = request(body, {"Content-Type": "application/json"})
        assert list(network_of(stand_in).attachments(sent)) == []
        network_of(stand_in).respond(sent, stand_in.settings)
