"""A stand-in for Twilio: signed inbound forms, media behind Basic auth, and an object store without it."""

import base64
from collections.abc import Mapping
from typing import Self
from urllib.parse import parse_qsl, urlencode

from twilio.request_validator import RequestValidator

from tests.support.networks.serving import Asked, Reply, Sent, StandIn, give, say

ACCOUNT_SID = "AC" + "0" * 32
AUTH_TOKEN = "f" * 32


class TwilioStandIn(StandIn):
    """The stand-in for Twilio."""

    name = "twilio"
    content_type = "application/x-www-form-urlencoded; charset=utf-8"
    store_url: str | None = None

    def __enter__(self) -> Self:
        self.store_url = self.listen(self.reply_as_store)
        return super().__enter__()

    @property
    def settings(self) -> Mapping[str, str]:
        given = {"accountSid": ACCOUNT_SID, "authToken": AUTH_TOKEN}
        return given | ({"apiBaseUrl": self.url} if self.url else {})

    def new_id(self, number: int) -> str:
        return f"ME{number:032x}"

    def message(self, *files: str, message: str = "1") -> bytes:
        return urlencode(self.parameters(*files, message=message)).encode()

    def parameters(self, *files: str, message: str = "1") -> dict[str, str]:
        """Return the documented parameters of an inbound MMS."""
        sid = f"MM{int(message):032x}"
        told = {
            "ToCountry": "US",
            "MediaContentType0": "",
            "SmsMessageSid": sid,
            "NumMedia": str(len(files)),
            "SmsStatus": "received",
            "Body": "Jenny I got your number ☎",
            "FromCountry": "US",
            "To": "whatsapp:+14155238886",
            "NumSegments": "1",
            "MessageSid": sid,
            "AccountSid": ACCOUNT_SID,
            "From": "whatsapp:+14158675310",
            "ApiVersion": "2010-04-01",
        }
        path = (
            f"{self.url or 'https://api.twilio.com'}/2010-04-01/Accounts/{ACCOUNT_SID}/Messages/{sid}/Media"
        )
        for number, file_id in enumerate(files):
            told[f"MediaUrl{number}"] = f"{path}/{file_id}"
            told[f"MediaContentType{number}"] = self.kept[file_id].media_type
        return told

    def says(self, text: str, number: str) -> bytes:
        said = {"MessageSid": f"SM{int(number):032x}", "From": "+49", "Body": text, "NumMedia": "0"}
        return urlencode(said).encode()

    def signature(self, sent: Sent) -> dict[str, str]:
        parameters = dict(parse_qsl(sent.body.decode(), keep_blank_values=True))
        return {"X-Twilio-Signature": RequestValidator(AUTH_TOKEN).compute_signature(sent.url, parameters)}

    def reply(self, asked: Asked) -> Reply:
        account = base64.b64encode(f"{ACCOUNT_SID}:{AUTH_TOKEN}".encode()).decode()
        if asked.headers.get("authorization") != f"Basic {account}":
            return say({"code": 20003, "message": "Authenticate"}, 401)
        file_id = asked.path.rpartition("/")[2]
        if file_id not in self.kept:
            return say({"code": 20404, "message": "The requested resource was not found"}, 404)
        return Reply(status=307, headers={"Location": f"{self.store_url}/{file_id}"})

    def reply_as_store(self, asked: Asked) -> Reply:
        """Refuse a request that is authorized in two ways, as object stores do."""
        if "authorization" in asked.headers:
            return Reply(status=400)
        return give(self.kept[asked.path[1:]])
