"""A small OpenID Connect provider: discovery, keys, single-use codes, PKCE, and signed identity tokens.

It signs every user in as the configured one; `claims` change the next token.
"""

import base64
import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qsl, urlsplit
from uuid import uuid4

from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT_ID, CLIENT_SECRET = "console", "s3cret/%"


@dataclass(kw_only=True)
class Provider:
    """The provider, and the requests it received."""

    issuer: str = ""
    email: str = ""
    claims: dict[str, Any] = field(default_factory=dict)
    key: RSAKey = field(default_factory=lambda: RSAKey.generate_key(2048, {"kid": "one"}))
    signing_key: RSAKey | None = None
    codes: dict[str, dict[str, str]] = field(default_factory=dict)
    asked: list[str] = field(default_factory=list)
    """The paths that were asked for."""

    def authorize(self, address: str) -> dict[str, str]:
        """Do what a browser and its user do at the URL; return the query of the redirect back."""
        asked = dict(parse_qsl(urlsplit(address).query))
        assert address.startswith(f"{self.issuer}/authorize?")
        assert (asked["response_type"], asked["client_id"]) == ("code", CLIENT_ID)
        assert "openid" in asked["scope"]
        assert asked["code_challenge_method"] == "S256"
        code = uuid4().hex
        self.codes[code] = asked
        return {"code": code, "state": asked["state"], "iss": self.issuer}

    def exchange(self, authorization: str | None, form: dict[str, str]) -> dict[str, Any] | None:
        """Return an identity token for a code, or None where RFC 6749 and 7636 demand a refusal."""
        expected = base64.b64encode(f"{CLIENT_ID}:s3cret%2F%25".encode()).decode()
        asked = self.codes.pop(form.get("code", ""), None)
        if asked is None or authorization != f"Basic {expected}":
            return None
        digest = base64.urlsafe_b64encode(sha256(form["code_verifier"].encode()).digest()).rstrip(b"=")
        if digest.decode() != asked["code_challenge"] or form["redirect_uri"] != asked["redirect_uri"]:
            return None
        now = int(time.time())
        told = {
            "iss": self.issuer,
            "sub": "user-1",
            "aud": CLIENT_ID,
            "exp": now + 300,
            "iat": now,
            "auth_time": now,
            "nonce": asked["nonce"],
            "email": self.email,
            "email_verified": True,
            **self.claims,
        }
        said = {name: value for name, value in told.items() if value is not None}
        token = jwt.encode({"alg": "RS256", "kid": "one"}, said, self.signing_key or self.key, ["RS256"])
        return {"access_token": "x", "token_type": "Bearer", "id_token": token}


@contextmanager
def running_provider() -> Iterator[Provider]:
    """Run a provider on a local port."""
    provider = Provider()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            provider.asked.append(self.path)
            documents = {
                "/.well-known/openid-configuration": {
                    "issuer": provider.issuer,
                    "authorization_endpoint": f"{provider.issuer}/authorize",
                    "token_endpoint": f"{provider.issuer}/token",
                    "jwks_uri": f"{provider.issuer}/keys",
                },
                "/keys": {"keys": [provider.key.as_dict(private=False)]},
            }
            self._answer(documents.get(self.path))

        def do_POST(self) -> None:
            raw = self.rfile.read(int(self.headers["Content-Length"])).decode()
            self._answer(provider.exchange(self.headers.get("Authorization"), dict(parse_qsl(raw))))

        def _answer(self, document: Any) -> None:
            body = json.dumps(document).encode()
            self.send_response(200 if document is not None else 400)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    provider.issuer = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield provider
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
