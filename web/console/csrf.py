"""Protection against cross-site request forgery: the origin that the browser reports, and a token of the session.

Every unsafe method needs both, and so does signing in. The token is an HMAC whose key is the secret in the
cookie. So the token needs no database row and no key of the service, and becomes invalid with the session.
"""

import hmac
from urllib.parse import urlsplit

from flask import Request

from shared.errors import PermissionDenied

FIELD = "csrf"
HEADER = "X-CSRF-Token"
# `none` is a request that the user started in the browser. No other site can send this value.
_OWN = frozenset({"same-origin", "none"})


def token_for(secret: str) -> str:
    """Return the form token that belongs to the secret of a session or of a sign-in attempt."""
    # The message `csrf` makes the token differ from other values that are derived from the secret of a
    # sign-in attempt.
    return hmac.new(secret.encode("utf-8", "surrogatepass"), b"csrf", "sha256").hexdigest()


def check_origin(http: Request, base_url: str) -> None:
    """Raise PermissionDenied unless a page of this service sends the request.

    `Origin` is read only if `Sec-Fetch-Site` is missing. A request without both headers is refused: every
    browser that the console supports sends one of them.
    """
    # Check this header first: no script can set it and no proxy changes its value.
    site = http.headers.get("Sec-Fetch-Site")
    if site is not None:
        is_ours = site in _OWN
    else:
        origin = http.headers.get("Origin", "")
        # Also accept the request's own host: users may open a process under a name other than BASE_URL, such
        # as localhost.
        is_ours = origin == base_url or (origin != "" and _host(origin) == http.headers.get("Host"))
    if not is_ours:
        raise PermissionDenied(
            "This request came from another site, so nothing was changed. Open the console and repeat it there."
        )


def check_token(http: Request, secret: str, sent: str | None) -> None:
    """Raise PermissionDenied unless the request has the token of the session, in its form or in a header."""
    token = (sent or http.headers.get(HEADER, "")).encode("utf-8", "surrogatepass")
    # Compare in constant time, and compare bytes: compare_digest() raises TypeError for text outside ASCII.
    if not hmac.compare_digest(token, token_for(secret).encode()):
        raise PermissionDenied("This form belongs to another session. Load the page again and repeat.")


def _host(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
