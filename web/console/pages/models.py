"""Models: the catalog with its prices, what this organization uses of it, and a place to ask one.

The playground makes the call that any client makes: through the same admission, on the same credits. With a script the
answer streams; without one the page has the whole.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flask import Response

from shared.credits.amounts import MICRO
from shared.credits.authorization import UsageScope, authorize_usage
from shared.credits.usage.usage_query import Dimension, Interval
from shared.credits.usage.usage_reports import UsageCriteria, UsageReport, UsageSum, Window, usage
from shared.db.database import Session
from shared.models.catalog import Endpoint, ModelEntry
from shared.models.dialects import Dialect, parse_chat
from shared.models.invocations import invoke, require_model_access
from web.console.charts import sparkline
from web.console.declarations import ConsoleRoutes
from web.console.forms import Form, require, wrong
from web.console.page_context import PageContext
from web.console.queries import WindowQuery
from web.console.spend_series import build_spend_series
from web.framework.rendering import HTML, asset_path
from web.http.negotiation import EVENT_STREAM, wants_events
from web.models.responses import rendered_response, streamed_response

routes = ConsoleRoutes("models")
asking = ConsoleRoutes("playground")

MAXIMUM_TOKENS = 32_768
_NOTHING = UsageSum(
    invocations=0,
    prompt_tokens=0,
    completion_tokens=0,
    cached_tokens=0,
    cache_write_tokens=0,
    reasoning_tokens=0,
    cost=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A model, what is used of it, the shape of that, and who uses most."""

    entry: ModelEntry
    sum: UsageSum
    spark: object | None
    most: tuple[str | None, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """An answer of the playground."""

    text: str
    cost: str | None
    prompt_tokens: int
    completion_tokens: int


@routes.page("/models", summary="List models with prices and usage, and ask one", query=WindowQuery)
def show_models(context: PageContext) -> Response:
    return context.render("models.html", **_shown(context, Window(context.call.query.window), {}))


@asking.action(
    "/models/ask",
    summary="Create a chat completion in the playground",
    rest="create_chat_completion",
    command="models ask",
    responses={200: {HTML: None, EVENT_STREAM: None}},
)
def ask_model(context: PageContext) -> Response:
    call, models = context.call, context.services.models
    require_model_access(context.caller)
    is_stream = wants_events(call.http)
    request = parse_chat(_body(context.form, is_stream=is_stream))
    # What the page has besides is read before the call: nothing may wait for rows while an answer is held.
    page = (
        None if is_stream else context.prepare("models.html", **_shown(context, Window.MONTH, context.form))
    )
    call.admission.hold(context.services.pools.model_calls)
    inbox = invoke(
        models.invoker,
        models.catalog.current(),
        context.caller,
        request,
        waited_seconds=call.admission.waited_seconds,
    )
    watch = call.watch(require_model_access)
    if page is None:
        return streamed_response(models.invoker, inbox, Dialect.CHAT, watch, call.http.environ)
    return rendered_response(models.invoker, inbox, watch, call.http.environ, _showing(page))


def _showing(page: Callable[..., Response]) -> Callable[[bytes], Response]:
    return lambda document: page(reply=_reply(document))


def _shown(context: PageContext, window: Window, asked: Form) -> Mapping[str, Any]:
    scope = authorize_usage(context.caller)
    entries = context.services.models.catalog.current().entries
    with context.services.database.autocommit() as session:
        by_model = _ask(session, scope, UsageCriteria(window=window, group_by=(Dimension.MODEL,)))
        month = UsageCriteria(window=Window.MONTH, interval=Interval.DAY, group_by=(Dimension.MODEL,))
        by_day = _ask(session, scope, month)
        of_whom = UsageCriteria(window=window, group_by=(Dimension.MODEL, Dimension.PRINCIPAL))
        most = _most(_ask(session, scope, of_whom))
        labels = context.labels(session, [who for who, _ in most.values()])
    sums = {group.keys[0]: group.sum for group in by_model.groups}
    spent = build_spend_series(by_day.groups, by_day.starts_at, by_day.ends_at, timedelta(days=1)).by_name
    rows = [
        Row(
            entry=entry,
            sum=sums.get(entry.id, _NOTHING),
            spark=_spark(entry.id, spent.get(entry.id)),
            most=most.get(entry.id),
        )
        for entry in entries
    ]
    offered = {entry.id for entry in entries}
    return {
        "window": window.value,
        "gone": [(name, at) for name, at in sums.items() if name not in offered],
        "rows": sorted(rows, key=lambda row: (-row.sum.cost, -row.sum.invocations)),
        "total": by_model.total,
        "labels": labels,
        "callable": [row.entry for row in rows if row.entry.supports(Endpoint.CHAT_COMPLETIONS)],
        "more_scripts": [asset_path("playground.js")],
        "maximum_tokens": MAXIMUM_TOKENS,
        "asked": asked,
        "reply": None,
    }


def _ask(session: Session, scope: UsageScope, criteria: UsageCriteria) -> UsageReport:
    return usage(session, scope.organization_id, criteria, user_id=scope.user_id)


def _most(report: UsageReport) -> Mapping[str, tuple[str | None, int]]:
    """Give who spent most on each model, and how many percent of it; groups come with the dearest first."""
    totals: dict[str, int] = {}
    first: dict[str, tuple[str | None, int]] = {}
    for group in report.groups:
        model, who = group.keys
        totals[model or "?"] = totals.get(model or "?", 0) + group.sum.cost
        first.setdefault(model or "?", (who, group.sum.cost))
    return {
        model: (who, 100 * cost // totals[model]) for model, (who, cost) in first.items() if totals[model]
    }


def _spark(name: str, values: Any) -> object | None:
    if not values:
        return None
    return sparkline([at / MICRO for at in values], label=f"Spend on {name} by day, 30 days")


def _body(form: Form, *, is_stream: bool) -> dict[str, Any]:
    longest = form.get("max", "1024").strip()
    if not longest.isascii() or not longest.isdigit() or not 1 <= int(longest[:9]) <= MAXIMUM_TOKENS:
        raise wrong("max", f"must be a number from 1 to {MAXIMUM_TOKENS:,}")
    said = [{"role": "user", "content": require(form, "message")}]
    told = [{"role": "system", "content": form["instructions"]}] if form.get("instructions") else []
    body: dict[str, Any] = {
        "model": require(form, "model"),
        "messages": [*told, *said],
        "max_completion_tokens": int(longest),
    }
    return body | ({"stream": True, "stream_options": {"include_usage": True}} if is_stream else {})


def _reply(document: bytes) -> Reply:
    answer = json.loads(document)
    used = answer.get("usage") or {}
    return Reply(
        text=answer["choices"][0]["message"].get("content") or "",
        cost=used.get("cost"),
        prompt_tokens=used.get("prompt_tokens", 0),
        completion_tokens=used.get("completion_tokens", 0),
    )
