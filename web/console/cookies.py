"""The cookies of the console: the session's secret, the secret of a sign-in attempt, and the theme.

Cookies named `__Host-` are Secure: a browser stores them only over https or at localhost.
"""

from urllib.parse import urlsplit

from flask import Request, Response, current_app

from web.framework.authentication import SESSION_COOKIE

SESSION = SESSION_COOKIE
# A browser accepts a cookie with this prefix only from this host: a subdomain cannot set it.
ATTEMPT = "__Host-qm-in"
# The theme is no secret, so omit the prefix: the cookie then also works over plain http.
THEME = "qm-theme"
THEMES = ("system", "light", "dark")
_ATTEMPT_SECONDS = 3600
_THEME_SECONDS = 365 * 24 * 3600


def find_session(http: Request) -> str | None:
    """Return the secret of the session, or None if the request has no session cookie."""
    return http.cookies.get(SESSION)


def set_secret(response: Response, name: str, secret: str) -> Response:
    """Set the cookie of a secret.

    A session's cookie lasts until the browser closes. A sign-in attempt's cookie lasts an hour.
    """
    seconds = _ATTEMPT_SECONDS if name == ATTEMPT else None
    # Use Lax and not Strict: a link in a mail and the provider's redirect come from another site and need the
    # cookies.
    response.set_cookie(name, secret, max_age=seconds, secure=True, httponly=True, samesite="Lax", path="/")
    return response


def delete_secret(response: Response, name: str) -> Response:
    """Delete the cookie of a secret."""
    # Repeat the attributes that the name's prefix requires: without them, a browser ignores the deletion.
    response.delete_cookie(name, secure=True, httponly=True, samesite="Lax", path="/")
    return response


def find_theme(http: Request) -> str | None:
    """Return the chosen theme, or None if the page follows the theme of the operating system."""
    chosen = http.cookies.get(THEME)
    # `system` returns None: a page without a theme class follows the operating system.
    return chosen if chosen in THEMES[1:] else None


def set_theme(response: Response, chosen: str) -> Response:
    """Set the cookie of the theme, for a year."""
    response.set_cookie(THEME, chosen, max_age=_THEME_SECONDS, httponly=True, samesite="Lax", path="/console")
    return response


def are_accepted(http: Request) -> bool:
    """Return whether a browser stores Secure cookies at the address of this request."""
    host = urlsplit(f"//{http.headers.get('Host', '')}").hostname or ""
    is_local = host in ("localhost", "127.0.0.1", "::1") or host.endswith(".localhost")
    # Use the scheme of BASE_URL: behind a proxy that ends TLS, the request itself is plain http.
    known = urlsplit(str(current_app.config["BASE_URL"]))
    return is_local or http.scheme == "https" or (known.scheme == "https" and known.hostname == host)
