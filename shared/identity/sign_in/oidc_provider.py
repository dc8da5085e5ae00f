"""Sign in by OpenID Connect: the authorization code flow with PKCE, at the provider in the settings.

State, nonce and verifier bind the provider's response to the browser that started the sign-in. They are derived
from a secret in the browser's cookie, and the server stores nothing. Requests to the provider pass the egress
policy. The provider must have verified the user's e-mail address, and authenticated the user within
`MAX_AUTH_AGE_SECONDS`.
"""

import base64
import hmac
import json
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from typing import Any
from urllib.parse import quote, urlencode

from joserfc import jws
from joserfc.errors import JoseError
from joserfc.jwk import KeySet

from shared.config.settings import Settings
from shared.egress.errors import EgressError, SourceStatusError
from shared.egress.fetch import ask
from shared.egress.policy import EgressPolicy
from shared.errors import DomainError
from shared.identity.tokens.jws import CLOCK_LEEWAY_SECONDS, TokenRefused, seconds, text

ALGORITHMS = ["RS256", "PS256", "ES256", "EdDSA"]
MAX_AUTH_AGE_SECONDS = 600
"""The largest age of the provider's own authentication: a new session counts as stepped up."""
DEADLINE_SECONDS = 5.0
MAXIMUM_CHARACTERS = 16_384
DISCOVERY_CACHE_SECONDS = 300.0
"""How long the provider's discovery document is cached; its keys are read for each sign-in."""


class SignInRefused(Exception):
    """The sign-in was refused. The text gives the reason, for the log only."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Attempt:
    """A sign-in attempt of one browser; all values are derived from the secret in its cookie."""

    secret: str = field(repr=False)
    redirect_uri: str

    @property
    def state(self) -> str:
        """The `state` parameter, which the provider returns with the code."""
        return self._derived("state")

    @property
    def nonce(self) -> str:
        """The `nonce`, which the identity token must contain."""
        return self._derived("nonce")

    @property
    def verifier(self) -> str:
        """The code verifier of PKCE, without which no client can exchange the authorization code (RFC 7636)."""
        return self._derived("verifier")

    @property
    def challenge(self) -> str:
        """The code challenge: the verifier's SHA-256, sent with the authorization request."""
        return _encoded(sha256(self.verifier.encode()).digest())

    def _derived(self, purpose: str) -> str:
        return _encoded(hmac.digest(self.secret.encode("utf-8", "surrogatepass"), purpose.encode(), "sha256"))


class SignInProvider:
    """The OpenID provider in the settings; one per process, safe to share between threads."""

    def __init__(self, settings: Settings) -> None:
        """Read the settings. No request goes to the provider before the first sign-in."""
        self._issuer, self._client_id = settings.oidc_issuer or "", settings.oidc_client_id or ""
        secret = settings.oidc_client_secret
        self._client_secret = secret.get_secret_value() if secret is not None else None
        self._policy = EgressPolicy.of(settings)
        self._described: Mapping[str, Any] = {}
        self._described_at = float("-inf")

    @property
    def is_configured(self) -> bool:
        """Whether the settings name a provider."""
        return bool(self._issuer)

    def authorization_url(self, attempt: Attempt) -> str:
        """Return the URL to which the browser is redirected. Raises SignInRefused."""
        parameters = {
            "response_type": "code",
            "client_id": self._client_id,
            "redirect_uri": attempt.redirect_uri,
            "scope": "openid email",
            "state": attempt.state,
            "nonce": attempt.nonce,
            "code_challenge": attempt.challenge,
            "code_challenge_method": "S256",
            "max_age": str(MAX_AUTH_AGE_SECONDS),
        }
        endpoint = self._discover("authorization_endpoint")["authorization_endpoint"]
        return f"{endpoint}{'&' if '?' in endpoint else '?'}{urlencode(parameters)}"

    def verified_email(self, attempt: Attempt, response: Mapping[str, str], *, now: float) -> str:
        """Return the e-mail address that the provider has verified. Raises SignInRefused.

        `response` holds the parameters with which the provider redirected the browser back; `now` is in seconds since
        1970.
        """
        # Check the state before any request: with a wrong state the response was made for another browser.
        if not hmac.compare_digest(response.get("state", "").encode(), attempt.state.encode()):
            raise SignInRefused("state")
        if response.get("iss", self._issuer) != self._issuer:  # optional (RFC 9207)
            raise SignInRefused("iss")
        if not response.get("code"):
            raise SignInRefused("no code")
        provider = self._discover("token_endpoint", "jwks_uri")
        token = self._exchange(provider["token_endpoint"], attempt, response["code"])
        try:
            claims = self._read(token, provider["jwks_uri"])
            self._check(claims, attempt, now)
            return text(claims, "email")
        except (JoseError, TokenRefused, ValueError, RecursionError) as error:
            raise SignInRefused(str(error)) from error

    def _check(self, claims: Mapping[str, Any], attempt: Attempt, now: float) -> None:
        audience = claims.get("aud")
        named = audience if isinstance(audience, list) else [audience]
        if claims.get("iss") != self._issuer:
            raise TokenRefused("issuer")
        if self._client_id not in named or (len(named) > 1 and claims.get("azp") != self._client_id):
            raise TokenRefused("audience")
        if not hmac.compare_digest(str(claims.get("nonce", "")).encode(), attempt.nonce.encode()):
            raise TokenRefused("nonce")
        if seconds(claims, "exp") <= now - CLOCK_LEEWAY_SECONDS:
            raise TokenRefused("exp")
        if seconds(claims, "iat") > now + CLOCK_LEEWAY_SECONDS:
            raise TokenRefused("iat")
        # Check the time of authentication: a provider may ignore the requested `max_age`.
        if seconds(claims, "auth_time") < now - MAX_AUTH_AGE_SECONDS - CLOCK_LEEWAY_SECONDS:
            raise TokenRefused("auth_time")
        # Refuse an unverified address: some providers let users enter any address, even that of another user.
        if claims.get("email_verified") is not True:
            raise TokenRefused("email_verified")

    def _read(self, token: str, jwks_uri: str) -> Mapping[str, Any]:
        if len(token) > MAXIMUM_CHARACTERS or not token.isascii():
            raise TokenRefused("form")
        keys = KeySet.import_key_set(self._ask(jwks_uri))  # type: ignore[arg-type]
        found = json.loads(jws.deserialize_compact(token, keys, algorithms=ALGORITHMS).payload)
        if not isinstance(found, dict):
            raise TokenRefused("claims")
        return found

    def _exchange(self, address: str, attempt: Attempt, code: str) -> str:
        sent = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": attempt.redirect_uri,
            "code_verifier": attempt.verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded", "Accept": "application/json"}
        if self._client_secret is None:
            sent["client_id"] = self._client_id
        else:
            # Form-encode the id and the secret before they are joined (RFC 6749 2.3.1).
            pair = f"{quote(self._client_id, safe='')}:{quote(self._client_secret, safe='')}"
            headers["Authorization"] = f"Basic {base64.b64encode(pair.encode()).decode()}"
        token = self._ask(address, headers, method="POST", body=urlencode(sent).encode()).get("id_token")
        if not isinstance(token, str):
            raise SignInRefused("no identity token")
        return token

    def _discover(self, *wanted: str) -> Mapping[str, str]:
        found, now = self._described, time.monotonic()
        if now - self._described_at > DISCOVERY_CACHE_SECONDS:
            found = self._ask(f"{self._issuer.rstrip('/')}/.well-known/openid-configuration")
        if found.get("issuer") != self._issuer:
            raise SignInRefused("the discovery document is another issuer's")
        if not all(isinstance(found.get(name), str) for name in wanted):
            raise SignInRefused("the discovery document lacks an endpoint")
        if found is not self._described:
            self._described, self._described_at = found, now
        return found

    def _ask(self, url: str, headers: Mapping[str, str] | None = None, **options: Any) -> dict[str, Any]:
        try:
            raw = ask(url, headers, policy=self._policy, deadline_seconds=DEADLINE_SECONDS, **options)
            found = json.loads(raw)
        except SourceStatusError as error:
            raise SignInRefused(f"the provider responded with status {error.status}") from error
        except (EgressError, DomainError, ValueError, RecursionError) as error:
            raise SignInRefused(str(error)) from error
        if not isinstance(found, dict):
            raise SignInRefused("the response is not a JSON object")
        return found


def _encoded(digest: bytes) -> str:
    return base64.urlsafe_b64encode(digest).rstrip(b"=").decode()
