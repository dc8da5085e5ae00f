"""Sign in by a one-time link or at an OpenID Connect provider, confirm the identity again, and sign out.

The code of a link is in the URL's fragment, so no server receives the code with the GET and no log contains
it. Only the POST uses the code up, so a mail scanner that opens links does not. Before there is a session, the
cookie of the sign-in attempt contains the secret of the form's token. This cookie never becomes the session's
cookie, which prevents session fixation.
"""

from secrets import token_urlsafe
from urllib.parse import urlsplit

from flask import Response
from sqlalchemy import func, select

from shared import failpoints
from shared.identity.errors import ResourceNotFound
from shared.identity.sign_in.console_sessions import sign_in, sign_in_as, sign_out, step_up
from shared.identity.sign_in.oidc_provider import Attempt, SignInProvider, SignInRefused
from shared.observability.telemetry import get_logger
from web.console import cookies, csrf
from web.console.declarations import SIGN_IN, ConsoleRoutes, go_to
from web.console.forms import read_form
from web.console.navigation import ROOT
from web.console.page_context import POLICY, SCRIPTS, STEP_UP, PageContext, forbid_caching
from web.console.queries import NextQuery
from web.framework.authentication import Authentication, limit_failed_authentication
from web.framework.calls import RequestContext, request_id
from web.framework.rendering import HTML, asset_path, page
from web.framework.routes import AnyQuery, Routes
from web.http.client_address import client_address

routes = ConsoleRoutes("sign-in")
public_routes = Routes("console")

log = get_logger(__name__)

REFUSED = "This code is wrong, older than ten minutes, or was used before. Create a new link."
NOT_VERIFIED = "The provider did not confirm who you are, or that your address is verified. Try again."
UNKNOWN = "No user here has the address that the provider confirmed. Ask an administrator to invite you."
STEP_UP_TITLE = "Confirm it's you"
NO_COOKIE = "The browser did not send the cookie of this page. Allow cookies and load the page again."


@public_routes.route(
    "GET",
    SIGN_IN,
    summary="Show how to sign in to the console",
    authentication=Authentication.PUBLIC,
    responses={200: HTML},
    hidden=True,
)
def show_sign_in(call: RequestContext) -> Response:
    return _sign_in_page(call)


@public_routes.route(
    "POST",
    SIGN_IN,
    summary="Sign in to the console",
    authentication=Authentication.PUBLIC,
    responses={303: None},
    hidden=True,
)
def begin_session(call: RequestContext) -> Response:
    # ConsoleRoutes.action() makes these checks with a session. Here, the secret of the attempt replaces the
    # session.
    csrf.check_origin(call.http, call.services.settings.base_url)
    form = read_form(call)
    attempt = call.http.cookies.get(cookies.ATTEMPT)
    # Check the cookie before the token: without the cookie no token is valid, and the page says why the
    # cookie is missing.
    if not attempt:
        return _sign_in_page(call, NO_COOKIE)
    csrf.check_token(call.http, attempt, form.get(csrf.FIELD))
    with call.services.database.transaction() as session:
        made = sign_in(
            session,
            form.get("code", "").strip(),
            request_id=request_id(),
            client_address=client_address(call.http.environ),
        )
        # Tests kill the process before and after the commit.
        failpoints.hit("sign_in.before_commit")
    failpoints.hit("sign_in.committed")
    if made is None:
        # Count each wrong code against the client's address, so that codes cannot be guessed at full speed.
        limit_failed_authentication(call.http, call.services)
        return _sign_in_page(call, REFUSED)
    response = cookies.set_secret(go_to(ROOT), cookies.SESSION, made.token.value)
    return forbid_caching(cookies.delete_secret(response, cookies.ATTEMPT))


@public_routes.route(
    "GET",
    f"{SIGN_IN}/provider",
    summary="Redirect to the provider of sign-in",
    authentication=Authentication.PUBLIC,
    responses={303: None},
    hidden=True,
)
def go_to_provider(call: RequestContext) -> Response:
    # Create a new secret for each attempt, so that an attacker cannot make another browser finish the
    # attacker's attempt.
    provider, attempt = _provider(call), token_urlsafe(32)
    try:
        response = go_to(provider.authorization_url(_attempt(call, attempt)))
    except SignInRefused as refused:
        return _refuse(call, refused)
    return forbid_caching(cookies.set_secret(response, cookies.ATTEMPT, attempt))


@public_routes.route(
    "GET",
    f"{SIGN_IN}/provider/back",
    summary="Sign in to the console as the user that the provider confirmed",
    authentication=Authentication.PUBLIC,
    query=AnyQuery,
    responses={303: None},
    hidden=True,
)
def return_from_provider(call: RequestContext) -> Response:
    # There is no form token here: `state` binds the provider's redirect to the cookie.
    provider, attempt = _provider(call), call.http.cookies.get(cookies.ATTEMPT)
    if not attempt:
        return _sign_in_page(call, NO_COOKIE)
    # Compare the time of the provider's authentication with the database's clock, which all processes share.
    with call.services.database.autocommit() as session:
        now = session.execute(select(func.extract("epoch", func.now()))).scalar_one()
    try:
        email = provider.verified_email(_attempt(call, attempt), call.http.args, now=float(now))
    except SignInRefused as refused:
        return _refuse(call, refused)
    with call.services.database.transaction() as session:
        made = sign_in_as(
            session, email, request_id=request_id(), client_address=client_address(call.http.environ)
        )
    if made is None:
        return _sign_in_page(call, UNKNOWN)
    response = cookies.set_secret(go_to(ROOT), cookies.SESSION, made.token.value)
    return forbid_caching(cookies.delete_secret(response, cookies.ATTEMPT))


@routes.action("/out", summary="Sign out", rest=None, command=None)
def end_session(context: PageContext) -> Response:
    with context.services.database.transaction() as session:
        sign_out(session, actor=context.actor)
    return cookies.delete_secret(go_to(SIGN_IN), cookies.SESSION)


@routes.page(
    "/step-up",
    title=STEP_UP_TITLE,
    permission=None,
    navigation=None,
    summary="Show how to confirm the identity",
    query=NextQuery,
)
def show_step_up(context: PageContext) -> Response:
    return context.render(
        "step_up.html", provider=context.services.settings.oidc_issuer, next=_next(context), refusal=None
    )


@routes.action("/step-up", summary="Confirm the identity of the session's user", rest=None, command=None)
def confirm_identity(context: PageContext) -> Response:
    with context.services.database.transaction() as session:
        made = step_up(session, actor=context.actor, proof=context.form.get("proof", "").strip())
    if made is None:
        limit_failed_authentication(context.call.http, context.services)
        return context.render(
            "step_up.html",
            title=STEP_UP_TITLE,
            provider=context.services.settings.oidc_issuer,
            status=422,
            next=_next(context),
            refusal=REFUSED,
        )
    return cookies.set_secret(go_to(_next(context)), cookies.SESSION, made.token.value)


def local_path(path: str | None) -> str:
    """Return a path of the console to continue at.

    Return `path` if it is a path of the console, else the path of the overview.
    """
    # Refuse `\` and `..`: browsers read `\` as `/` and resolve `..`, so such a path could leave the console.
    if not path or "\\" in path or ".." in path or not path.isprintable():
        return ROOT
    parts = urlsplit(path)
    is_ours = not parts.scheme and not parts.netloc and (parts.path + "/").startswith(f"{ROOT}/")
    # Exclude the step-up page, because it would lead back to itself.
    return path if is_ours and not path.startswith(STEP_UP) else ROOT


def _next(context: PageContext) -> str:
    return local_path(context.form.get("next") or (context.call.query.next if context.call.query else None))


def _provider(call: RequestContext) -> SignInProvider:
    provider = call.services.sign_in_provider
    if not provider.is_configured:
        raise ResourceNotFound
    return provider


def _attempt(call: RequestContext, secret: str) -> Attempt:
    back = f"{call.services.settings.base_url}{SIGN_IN}/provider/back"
    return Attempt(secret=secret, redirect_uri=back)


def _refuse(call: RequestContext, refused: SignInRefused) -> Response:
    log.warning("console.sign_in_refused", reason=str(refused))
    limit_failed_authentication(call.http, call.services)
    return _sign_in_page(call, NOT_VERIFIED)


def _sign_in_page(call: RequestContext, refusal: str | None = None) -> Response:
    # Keep an existing secret, so that the form of a page in another tab stays valid.
    attempt = call.http.cookies.get(cookies.ATTEMPT) or token_urlsafe(32)
    response = page(
        "console/sign_in.html",
        policy=POLICY,
        status=200 if refusal is None else 422,
        refusal=refusal,
        organization=None,
        theme=cookies.find_theme(call.http),
        provider=call.services.settings.oidc_issuer,
        accepts_cookies=cookies.are_accepted(call.http),
        csrf=csrf.token_for(attempt),
        scripts=[asset_path(name) for name in SCRIPTS],
    )
    return forbid_caching(cookies.set_secret(response, cookies.ATTEMPT, attempt))
