"""Forged, altered and misused tokens: every attack is refused with the same error."""

import base64
import hashlib
import hmac
import json
from collections.abc import Callable
from typing import Any

import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey, RSAKey

from shared.identity.authentication.authenticator import Authenticator
from shared.identity.errors import AttributionInvalid, AuthenticationRequired, InvalidToken
from shared.identity.tokens import access_tokens, usage_attribution
from shared.identity.tokens.key_rotation import KeyPurpose
from tests.shared.identity.conftest import World
from tests.support.data.identity import IdentityFactory


class Forger:
    """Takes a good token apart and puts it together wrongly; holds our real key only for tokens that we would sign."""

    def __init__(self, factory: IdentityFactory, token: str, purpose: KeyPurpose, typ: str) -> None:
        self.token = token
        self.typ = typ
        self.header_text, self.payload_text, self.signature_text = token.split(".")
        self.header: dict[str, Any] = json.loads(_decode(self.header_text))
        self.claims: dict[str, Any] = json.loads(_decode(self.payload_text))
        signer = factory.keys.signing_key(purpose)
        self.key, self.kid = signer.key, signer.kid
        self.other_purpose = factory.keys.signing_key(
            KeyPurpose.ATTRIBUTION if purpose is KeyPurpose.ACCESS else KeyPurpose.ACCESS
        )

    def signed(self, header: dict[str, Any], claims: dict[str, Any], key: ECKey | None = None) -> str:
        """Return a token with a valid signature over any bytes, without a library's checks."""
        return self.signed_text(_json(header), _json(claims), key)

    def signed_text(self, header: bytes, payload: bytes, key: ECKey | None = None) -> str:
        signing_input = f"{_encode(header)}.{_encode(payload)}"
        private = (key or self.key).get_op_key("sign")
        r, s = decode_dss_signature(private.sign(signing_input.encode(), ec.ECDSA(hashes.SHA256())))
        return f"{signing_input}.{_encode(r.to_bytes(32) + s.to_bytes(32))}"

    def with_header(self, **members: Any) -> str:
        return self.signed({**self.header, **members}, self.claims)

    def with_claims(self, **members: Any) -> str:
        return self.signed(self.header, {**self.claims, **members})

    def without_claim(self, name: str) -> str:
        return self.signed(self.header, {key: value for key, value in self.claims.items() if key != name})

    def public_pem(self) -> bytes:
        public: ec.EllipticCurvePublicKey = self.key.get_op_key("verify")
        return public.public_bytes(
            serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
        )


def _hs256(forger: Forger, secret: bytes) -> str:
    header = _json({**forger.header, "alg": "HS256"})
    signing_input = f"{_encode(header)}.{forger.payload_text}"
    return f"{signing_input}.{_encode(hmac.new(secret, signing_input.encode(), hashlib.sha256).digest())}"


def _with_embedded_key(forger: Forger) -> str:
    key = ECKey.generate_key("P-256")
    return forger.signed({**forger.header, "jwk": key.as_dict(private=False)}, forger.claims, key)


def _der_signature(forger: Forger) -> str:
    signing_input = f"{forger.header_text}.{forger.payload_text}"
    private = forger.key.get_op_key("sign")
    return f"{signing_input}.{_encode(private.sign(signing_input.encode(), ec.ECDSA(hashes.SHA256())))}"


def _rs256(forger: Forger) -> str:
    key = RSAKey.generate_key(2048)
    return jwt.encode({"alg": "RS256", "typ": forger.typ, "kid": forger.kid}, forger.claims, key, ["RS256"])


def _p384(forger: Forger) -> str:
    key = ECKey.generate_key("P-384")
    return jwt.encode({"alg": "ES384", "typ": forger.typ, "kid": forger.kid}, forger.claims, key, ["ES384"])


def _altered_payload(forger: Forger) -> str:
    payload = _encode(_json({**forger.claims, "deployment_id": "00000000-0000-7000-8000-000000000000"}))
    return f"{forger.header_text}.{payload}.{forger.signature_text}"


def _loose_last_character(forger: Forger) -> str:
    """Return the same signature, encoded with other unused bits in its last character."""
    alphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"
    position = alphabet.index(forger.token[-1])
    return forger.token[:-1] + alphabet[position ^ 1]


def _without_header(forger: Forger, name: str) -> str:
    return forger.signed({key: value for key, value in forger.header.items() if key != name}, forger.claims)


ATTACKS: dict[str, Callable[[Forger], str]] = {
    "algorithm none, no signature": lambda f: (
        f"{_encode(_json({**f.header, 'alg': 'none'}))}.{f.payload_text}."
    ),
    "algorithm none, old signature": lambda f: ".".join(
        [_encode(_json({**f.header, "alg": "none"})), f.payload_text, f.signature_text]
    ),
    "algorithm nOnE": lambda f: f.with_header(alg="nOnE"),
    "HS256 with the public key in PEM": lambda f: _hs256(f, f.public_pem()),
    "HS256 with the public key in JSON": lambda f: _hs256(f, _json(f.key.as_dict(private=False))),
    "HS256 with an empty secret": lambda f: _hs256(f, b""),
    "HS256 by a library": lambda f: jwt.encode(
        {"alg": "HS256", "typ": f.typ, "kid": f.kid}, f.claims, OctKey.generate_key(256), ["HS256"]
    ),
    "RS256 under our key id": _rs256,
    "ES384 under our key id": _p384,
    "foreign key under our key id": lambda f: f.signed(f.header, f.claims, ECKey.generate_key("P-256")),
    "key of the other purpose": lambda f: f.signed(
        {**f.header, "kid": f.other_purpose.kid}, f.claims, f.other_purpose.key
    ),
    "key of the other purpose under our key id": lambda f: f.signed(f.header, f.claims, f.other_purpose.key),
    "embedded jwk": _with_embedded_key,
    "jku": lambda f: f.with_header(jku="https://evil.example/jwks.json"),
    "x5u": lambda f: f.with_header(x5u="https://evil.example/cert.pem"),
    "x5c": lambda f: f.with_header(x5c=["MIIB"]),
    "crit": lambda f: f.with_header(crit=["exp"]),
    "b64 false": lambda f: f.with_header(b64=False, crit=["b64"]),
    "cty": lambda f: f.with_header(cty="JWT"),
    "zip": lambda f: f.with_header(zip="DEF"),
    "missing key id": lambda f: _without_header(f, "kid"),
    "missing type": lambda f: _without_header(f, "typ"),
    "missing algorithm": lambda f: _without_header(f, "alg"),
    "unknown key id": lambda f: f.with_header(kid="nobody"),
    "key id that is a path": lambda f: f.with_header(kid="../../../../dev/null"),
    "key id that is SQL": lambda f: f.with_header(kid="' OR 1=1 --"),
    "key id that is a number": lambda f: f.with_header(kid=1),
    "key id that is a list": lambda f: f.with_header(kid=[f.kid]),
    "type in capitals": lambda f: f.with_header(typ=f.typ.upper()),
    "type with a prefix": lambda f: f.with_header(typ=f"application/{f.typ}"),
    "type of a plain token": lambda f: f.with_header(typ="JWT"),
    "audience as a list": lambda f: f.with_claims(aud=[f.claims["aud"]]),
    "another audience": lambda f: f.with_claims(aud="https://other.example"),
    "audience that only begins like ours": lambda f: f.with_claims(aud=f.claims["aud"] + ".evil.example"),
    "missing audience": lambda f: f.without_claim("aud"),
    "another issuer": lambda f: f.with_claims(iss="https://other.example"),
    "missing issuer": lambda f: f.without_claim("iss"),
    "expired by one second": lambda f: f.with_claims(exp=f.claims["iat"] - 1),
    "expiry as text": lambda f: f.with_claims(exp=str(f.claims["exp"])),
    "expiry as a float": lambda f: f.with_claims(exp=float(f.claims["exp"])),
    "expiry true": lambda f: f.with_claims(exp=True),
    "expiry null": lambda f: f.with_claims(exp=None),
    "expiry not a number": lambda f: f.with_claims(exp=float("nan")),
    "expiry infinite": lambda f: f.signed_text(
        _json(f.header), _json(f.claims).replace(str(f.claims["exp"]).encode(), b"1e400")
    ),
    "missing expiry": lambda f: f.without_claim("exp"),
    "missing time of issue": lambda f: f.without_claim("iat"),
    "issued in the future": lambda f: f.with_claims(iat=f.claims["iat"] + 3600),
    "altered payload": _altered_payload,
    "signature of zeros": lambda f: f"{f.header_text}.{f.payload_text}.{_encode(bytes(64))}",
    "signature in DER": _der_signature,
    "empty signature": lambda f: f"{f.header_text}.{f.payload_text}.",
    "short signature": lambda f: f.token[:-4],
    "padded signature": lambda f: f.token + "==",
    "signature with loose bits": _loose_last_character,
    "signature with a line end": lambda f: f.token + "\n",
    "a fourth part": lambda f: f.token + ".AA",
    "two parts": lambda f: f.token.rpartition(".")[0],
    "header that is a list": lambda f: f.signed_text(b"[]", _json(f.claims)),
    "header that is not JSON": lambda f: f.signed_text(b"{", _json(f.claims)),
    "header nested too deep": lambda f: f"{_encode(b'[' * 2000)}.{f.payload_text}.{f.signature_text}",
    "payload that is a list": lambda f: f.signed_text(_json(f.header), b"[]"),
    "payload that is not JSON": lambda f: f.signed_text(_json(f.header), b"{"),
    "payload that is not text": lambda f: f.signed_text(_json(f.header), b"\xff\xfe"),
    "too long": lambda f: f.with_claims(padding="x" * 4000),
    "deployment that is no id": lambda f: f.with_claims(deployment_id="me"),
    "deployment in another spelling": lambda f: f.with_claims(
        deployment_id="{" + f.claims["deployment_id"] + "}"
    ),
    "deployment as a number": lambda f: f.with_claims(deployment_id=1),
    "another subject": lambda f: f.with_claims(sub="00000000-0000-7000-8000-000000000000"),
    "scope as a number": lambda f: f.with_claims(scope=1),
    "missing deployment": lambda f: f.without_claim("deployment_id"),
}


@pytest.fixture
def authenticator(factory: IdentityFactory) -> Authenticator:
    return factory.authenticator()


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_forged_access_token_is_refused(
    factory: IdentityFactory, authenticator: Authenticator, world: World, attack: str
) -> None:
    token = factory.access_token(world.deployment)
    forged = ATTACKS[attack](Forger(factory, token, KeyPurpose.ACCESS, access_tokens.TYPE))
    assert forged != token
    with pytest.raises((InvalidToken, AuthenticationRequired)):
        authenticator.authenticate(f"Bearer {forged}")
    assert authenticator.authenticate(f"Bearer {token}").caller is not None


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_forged_attribution_is_refused(
    factory: IdentityFactory, authenticator: Authenticator, world: World, attack: str
) -> None:
    good = factory.attribution(world.distribution)
    forged = ATTACKS[attack](Forger(factory, good, KeyPurpose.ATTRIBUTION, usage_attribution.TYPE))
    credential = authenticator.authenticate(factory.authorization(world.deployment))
    with pytest.raises(AttributionInvalid):
        authenticator.resolve(credential, forged)
    assert authenticator.resolve(credential, good).transaction_id is not None


def test_the_forger_signs_well_when_nothing_is_changed(
    factory: IdentityFactory, authenticator: Authenticator, world: World
) -> None:
    """Otherwise a forger that cannot sign would make every attack look refused."""
    access = Forger(factory, factory.access_token(world.deployment), KeyPurpose.ACCESS, access_tokens.TYPE)
    credential = authenticator.authenticate(f"Bearer {access.with_claims()}")
    good = factory.attribution(world.distribution)
    attribution = Forger(factory, good, KeyPurpose.ATTRIBUTION, usage_attribution.TYPE)
    assert authenticator.resolve(credential, attribution.with_claims()).transaction_id is not None


def test_an_attribution_is_no_access_token_and_an_access_token_no_attribution(
    factory: IdentityFactory, authenticator: Authenticator, world: World
) -> None:
    token, attribution = factory.access_token(world.deployment), factory.attribution(world.distribution)
    with pytest.raises(InvalidToken):
        authenticator.authenticate(f"Bearer {attribution}")
    with pytest.raises(AttributionInvalid):
        authenticator.resolve(authenticator.authenticate(f"Bearer {token}"), token)


def test_a_token_of_another_installation_is_refused(factory: IdentityFactory, world: World) -> None:
    token = factory.access_token(world.deployment)
    elsewhere = IdentityFactory(
        factory.database, factory.settings.model_copy(update={"base_url": "https://other.example"})
    )
    with pytest.raises(InvalidToken):
        elsewhere.authenticator().authenticate(f"Bearer {token}")


@pytest.mark.parametrize(
    "authorization",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Basic dXNlcjpwYXNz",
        "bearer:abc",
        "Token abc",
        "svk_abc",
        "Bearer\tabc",
    ],
)
def test_without_a_bearer_credential_authentication_is_required(
    authenticator: Authenticator, authorization: str | None
) -> None:
    with pytest.raises(AuthenticationRequired):
        authenticator.authenticate(authorization)


@pytest.mark.parametrize(
    "token", ["x", "a.b", "a.b.c", "....", "é", "\udcff", "svk_", "svk_" + "A" * 49, "A" * 5000]
)
def test_anything_else_as_a_bearer_credential_is_invalid(authenticator: Authenticator, token: str) -> None:
    with pytest.raises(InvalidToken):
        authenticator.authenticate(f"Bearer {token}")


def test_the_scheme_may_be_spelt_in_any_case(
    factory: IdentityFactory, authenticator: Authenticator, world: World
) -> None:
    token = factory.access_token(world.deployment)
    assert authenticator.authenticate(f"bearer {token}").caller is not None
    assert authenticator.authenticate(f"BEARER  {token} ").caller is not None


def _json(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":")).encode()


def _encode(value: bytes) -> str:
    return base64.urlsafe_b64encode(value).rstrip(b"=").decode()


def _decode(value: str) -> bytes:
    return base64.urlsafe_b64decode(value + "=" * (-len(value) % 4))
