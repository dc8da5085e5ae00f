"""The cookies of the console: the session's, that of an attempt to sign in, and the choice of light or dark.

`__Host-` cookies are Secure: a browser keeps them on https, and on this machine's own addresses.
"""

from urllib.parse import urlsplit

from flask import Request, Response, current_app

from web.framework.authentication import SESSION_COOKIE

SESSION = SESSION_COOKIE
ATTEMPT = "__Host-qm-in"
THEME = "qm-theme"
THEMES = ("system", "light", "dark")
_ATTEMPT_SECONDS = 3600
_THEME_SECONDS = 365 * 24 * 3600


def find_session(http: Request) -> str | None:
    """Find the session's secret."""
    return http.cookies.get(SESSION)


def keep(response: Response, name: str, secret: str) -> Response:
    """Have the browser keep a secret: the session's while it is open, an attempt's for an hour."""
    seconds = _ATTEMPT_SECONDS if name == ATTEMPT else None
    response.set_cookie(name, secret, max_age=seconds, secure=True, httponly=True, samesite="Lax", path="/")
    return response


def forget(response: Response, name: str) -> Response:
    """Have the browser forget a secret."""
    response.delete_cookie(name, secure=True, httponly=True, samesite="Lax", path="/")
    return response


def theme(http: Request) -> str | None:
    """Give the theme that was chosen; None is the system's."""
    chosen = http.cookies.get(THEME)
    return chosen if chosen in THEMES[1:] else None


def keep_theme(response: Response, chosen: str) -> Response:
    """Have the browser keep a theme."""
    response.set_cookie(THEME, chosen, max_age=_THEME_SECONDS, httponly=True, samesite="Lax", path="/console")
    return response


def can_keep(http: Request) -> bool:
    """Tell whether a browser at this address keeps Secure cookies at all."""
    host = urlsplit(f"//{http.headers.get('Host', '')}").hostname or ""
    is_here = host in ("localhost", "127.0.0.1", "::1") or host.endswith(".localhost")
    known = urlsplit(str(current_app.config["BASE_URL"]))  # where a proxy in front of us ends TLS
    return is_here or http.scheme == "https" or (known.scheme == "https" and known.hostname == host)
