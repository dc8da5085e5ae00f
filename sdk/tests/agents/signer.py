"""A service's signing key, for tokens that are valid except for one property."""

from __future__ import annotations

import time
from typing import Any
from uuid import uuid4

from joserfc import jwt
from joserfc.jwk import ECKey

from quartermaster.key_sets import KeySet
from quartermaster.verification import Deployment, Verifier

ISSUER = "https://quartermaster.example"


class Signer:
    """Signs tokens as the service does; `key_set` is the published key set."""

    def __init__(self, kid: str = "key-1") -> None:
        self.kid = kid
        self.key = ECKey.generate_key("P-256", {"kid": kid})
        self.deployment = Deployment(id=uuid4(), organization_id=uuid4())

    @property
    def key_set(self) -> dict[str, Any]:
        public = {**self.key.as_dict(private=False), "kid": self.kid, "use": "sig", "alg": "ES256"}
        return {"keys": [public]}

    def verifier(self, **more: Any) -> Verifier:
        keys = KeySet("https://unused.example", fetch=lambda _: self.key_set)
        return Verifier(ISSUER, self.deployment, keys=keys, **more)

    def request_token(self, header: dict[str, Any] | None = None, **changes: Any) -> str:
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": str(self.deployment.id),
            "sub": "quartermaster",
            "iat": now,
            "exp": now + 300,
            "jti": str(uuid4()),
        }
        return self.sign({"typ": "agent-request+jwt", **(header or {})}, {**claims, **changes})

    def attribution(self, header: dict[str, Any] | None = None, **changes: Any) -> str:
        now = int(time.time())
        claims = {
            "iss": ISSUER,
            "aud": f"{ISSUER}/usage-attribution",
            "iat": now,
            "exp": now + 3600,
            "jti": str(uuid4()),
            "txn": "transaction-1",
            "sub": str(uuid4()),
            "act": {"sub": str(uuid4())},
            "deployment_id": str(self.deployment.id),
            "payer": str(uuid4()),
            "scope": "callback",
        }
        return self.sign({"typ": "usage-attribution+jwt", **(header or {})}, {**claims, **changes})

    def sign(self, header: dict[str, Any], claims: dict[str, Any]) -> str:
        present = {name: value for name, value in claims.items() if value is not None}
        return jwt.encode({"alg": "ES256", "kid": self.kid, **header}, present, self.key, ["ES256"])
