"""The form of an OAuth client, with the client's id and secret (RFC 6749 2.3.1 and 3.2).

A parameter may occur at most once. An empty parameter counts as absent, and unknown parameters are ignored.
The client sends the secret by HTTP Basic or in the form, never by both.
"""

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass, field

from shared.errors import Kind
from shared.files.errors import ContentTooLarge
from shared.identity.errors import InvalidClient, InvalidRequest, OAuthError
from shared.identity.token_endpoint.oauth_metadata import TOKEN_EXCHANGE
from web.framework.calls import RequestContext
from web.http.url_encoded import FORM, RepeatedField, TooManyFields, decode, read_fields

# The longest parameter is a workflow's token, of a few KiB.
MAXIMUM_FORM_BYTES = 32 * 1024
MAXIMUM_PARAMETERS = 32
NOT_UTF_8 = "The request is not UTF-8."


class InvalidTarget(OAuthError):
    """The resource is not this service."""

    code = "invalid_target"


class FormTooLarge(OAuthError):
    """The form is larger than this endpoint accepts."""

    kind = Kind.TOO_LARGE


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientForm:
    """A form and the client's credentials, which are not verified yet."""

    client_id: str
    # Omit the secret from the representation: a logged form must not reveal it.
    client_secret: str = field(repr=False)
    parameters: Mapping[str, str] = field(repr=False)

    def require(self, name: str) -> str:
        """Return a parameter's value. Raises InvalidRequest if the parameter is absent."""
        if name not in self.parameters:
            raise InvalidRequest(f"The parameter {name} is required.")
        return self.parameters[name]


def read_client_form(call: RequestContext) -> ClientForm:
    """Return the form with the client's credentials.

    Raises InvalidRequest, or InvalidClient if there are no credentials.
    """
    parameters = _read_form(call)
    authorization = call.http.headers.get("Authorization")
    if authorization is None:
        client_id, secret = parameters.get("client_id"), parameters.get("client_secret")
    else:
        client_id, secret = _read_basic(authorization)
        if "client_secret" in parameters:
            raise InvalidRequest("Send the client's secret by HTTP Basic or in the form, not by both.")
        # A form may repeat the id of the header. If the two ids differ, the client is unknown.
        if parameters.get("client_id", client_id) != client_id:
            raise InvalidRequest("The client_id of the form is not that of the Authorization header.")
    if parameters.get("grant_type") == TOKEN_EXCHANGE:
        # The subject token authenticates the client. Refuse a secret beside it, because sending both is a
        # mistake.
        if not client_id or secret:
            raise InvalidRequest("A token is exchanged with the client's id, and without a secret.")
        return ClientForm(client_id=client_id, client_secret="", parameters=parameters)
    if not client_id or not secret:
        raise InvalidClient("Send the client's id and secret, by HTTP Basic or in the form.")
    return ClientForm(client_id=client_id, client_secret=secret, parameters=parameters)


def _read_form(call: RequestContext) -> dict[str, str]:
    if call.http.mimetype != FORM:
        raise InvalidRequest(f"Send the parameters as {FORM}.")
    try:
        raw = call.read_small_body(MAXIMUM_FORM_BYTES)
    except ContentTooLarge:
        # Raise the error in OAuth's format: OAuth clients cannot read the problem format of other routes.
        raise FormTooLarge from None
    try:
        return read_fields(raw, maximum=MAXIMUM_PARAMETERS)
    except TooManyFields:
        raise InvalidRequest("The request has too many parameters.") from None
    except RepeatedField:
        raise InvalidRequest("A parameter was sent more than once.") from None
    except UnicodeDecodeError:
        raise InvalidRequest(NOT_UTF_8) from None


def _read_basic(authorization: str) -> tuple[str, str]:
    scheme, _, encoded = authorization.partition(" ")
    if scheme.lower() != "basic":
        raise InvalidClient("A client authenticates by HTTP Basic.")
    try:
        # Without `validate`, Python would skip characters outside the alphabet, and several headers would
        # encode one secret.
        pair = base64.b64decode(encoded.strip(), validate=True)
    except binascii.Error:
        raise InvalidClient from None
    # The first colon ends the id: a secret may contain further colons (RFC 7617).
    client_id, colon, secret = pair.partition(b":")
    if not colon:
        raise InvalidClient
    try:
        # RFC 6749 2.3.1 encodes the id and the secret as form values before Base64, so decode both.
        return decode(client_id), decode(secret)
    except UnicodeDecodeError:
        raise InvalidRequest(NOT_UTF_8) from None
