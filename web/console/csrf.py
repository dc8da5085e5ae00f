"""Protection against cross-site request forgery: the origin that the browser reports, and a token of the session.

Every unsafe method needs both, signing in too. The token is an HMAC keyed by the secret of the cookie: it needs no row
and no key of the service, and ends with the session.
"""

import hmac
from urllib.parse import urlsplit

from flask import Request

from shared.errors import PermissionDenied

FIELD = "csrf"
HEADER = "X-CSRF-Token"
# `none` is a request that the user started in the browser itself, which no site can do.
_OWN = frozenset({"same-origin", "none"})


def token_for(secret: str) -> str:
    """Return the form token that belongs to the secret of a session or of a sign-in attempt."""
    # The message keeps the token apart from the values that a sign-in attempt derives from the same secret.
    return hmac.new(secret.encode("utf-8", "surrogatepass"), b"csrf", "sha256").hexdigest()


def check_origin(http: Request, base_url: str) -> None:
    """Raise PermissionDenied unless a page of this service sends the request.

    `Origin` is read only where `Sec-Fetch-Site` is missing. Without both headers the request is refused: every browser
    that the console supports sends one.
    """
    # First, because no script can set this header and no proxy changes what it says.
    site = http.headers.get("Sec-Fetch-Site")
    if site is not None:
        is_ours = site in _OWN
    else:
        origin = http.headers.get("Origin", "")
        # Or the host of the request: a process may also be opened under a name other than BASE_URL, such as
        # localhost.
        is_ours = origin == base_url or (origin != "" and _host(origin) == http.headers.get("Host"))
    if not is_ours:
        raise PermissionDenied(
            "This request came from another site, so nothing was changed. Open the console and repeat it there."
        )


def check_token(http: Request, secret: str, sent: str | None) -> None:
    """Raise PermissionDenied unless the form, or the header of a script, has the token of the session."""
    token = (sent or http.headers.get(HEADER, "")).encode("utf-8", "surrogatepass")
    # In constant time, and as bytes: compare_digest() raises TypeError for text outside ASCII.
    if not hmac.compare_digest(token, token_for(secret).encode()):
        raise PermissionDenied("This form belongs to another session. Load the page again and repeat.")


def _host(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:
        return None
