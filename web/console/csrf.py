"""Refuse what another site has a browser send: by what the browser says of its origin, and by a token of the session.

Both hold for every unsafe method, signing in too. The token is an HMAC whose key is the cookie's own secret: it needs
no row and no key of ours, and ends with the session.
"""

import hmac
from urllib.parse import urlsplit

from flask import Request

from shared.errors import PermissionDenied

FIELD = "csrf"
HEADER = "X-CSRF-Token"
_OWN = frozenset({"same-origin", "none"})


def token_for(secret: str) -> str:
    """Give the token of the session, or of the attempt to sign in, whose cookie holds this secret."""
    return hmac.new(secret.encode("utf-8", "surrogatepass"), b"csrf", "sha256").hexdigest()


def check_origin(http: Request, base_url: str) -> None:
    """Raise PermissionDenied unless the browser says that one of our own pages sends this.

    A browser that sends neither header is too old for the console.
    """
    site = http.headers.get("Sec-Fetch-Site")
    if site is not None:
        is_ours = site in _OWN
    else:
        origin = http.headers.get("Origin", "")
        is_ours = origin == base_url or (origin != "" and _host(origin) == http.headers.get("Host"))
    if not is_ours:
        raise PermissionDenied("This came from another site, and was not done.")


def check_token(http: Request, secret: str, sent: str | None) -> None:
    """Raise PermissionDenied unless the form, or a script's header, has the session's token."""
    token = (sent or http.headers.get(HEADER, "")).encode("utf-8", "surrogatepass")
    if not hmac.compare_digest(token, token_for(secret).encode()):
        raise PermissionDenied("This form is of another session; load the page again.")


def _host(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
