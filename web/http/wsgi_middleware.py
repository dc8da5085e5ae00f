"""WSGI middleware that runs before Flask, and before any logger, tracer or error page sees the request.

The middleware removes read grants from the URL, so that no access log, span, error page or `request.url`
contains the secret. It replaces the address of a trusted proxy by the client's (`client_address`). It also
makes gunicorn respect a response's `Connection: close`.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Any
from urllib.parse import unquote_to_bytes

from web.http.client_address import Network, apply_forwarded_for

# Key in a request's environ. The value is the list of read grants in the query.
GRANTS = "quartermaster.grants"

# Key in a request's environ. The value is whether the request's body has been read to the end.
BODY_READ = "quartermaster.body_read"

Environ = dict[str, Any]
StartResponse = Callable[..., Any]
Application = Callable[[Environ, StartResponse], Iterable[bytes]]


def wrap_application(application: Application, trusted_proxies: Sequence[Network] = ()) -> Application:
    """Wrap a WSGI application in the middleware. Requests from `trusted_proxies` may name their client."""

    def middleware(environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        _hide_grants(environ)
        apply_forwarded_for(environ, trusted_proxies)

        def start(status: str, headers: list[tuple[str, str]], exc_info: Any = None) -> Any:
            # Error responses set this header if the request body was not read.
            if ("Connection", "close") in headers:
                _force_close(start_response)
            return start_response(status, headers, exc_info) if exc_info else start_response(status, headers)

        return application(environ, start)

    return middleware


def _hide_grants(environ: Environ) -> None:
    # Remove the Referer: the referring page's URL may contain a read grant too.
    environ.pop("HTTP_REFERER", None)
    query = environ.get("QUERY_STRING", "")
    if not query:
        environ[GRANTS] = ()
        return
    parts = query.split("&")
    # Decode the name before comparing: a browser treats `%67rant` as the same parameter.
    grants = [
        part for part in parts if unquote_to_bytes(part.partition("=")[0].replace("+", " ")) == b"grant"
    ]
    environ[GRANTS] = tuple(
        unquote_to_bytes(part.partition("=")[2]).decode("utf-8", "replace") for part in grants
    )
    if grants:
        environ["QUERY_STRING"] = "&".join(part for part in parts if part not in grants)
        # Servers add copies of the URL to the environ. Replace the query in each copy.
        for name in ("RAW_URI", "REQUEST_URI"):
            if name in environ:
                environ[name] = environ[name].partition("?")[0]


def _force_close(start_response: StartResponse) -> None:
    """Make gunicorn close the connection after this response.

    gunicorn ignores an application's `Connection` header. With an open connection, gunicorn would read the
    rest of a refused body, possibly gigabytes, before the next request.
    """
    response = getattr(start_response, "__self__", None)
    if response is not None and hasattr(response, "force_close"):
        response.force_close()
