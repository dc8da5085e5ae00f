"""The page of models: the catalog with prices, the organization's usage of each model, and the playground.

A call of the playground is the same as a call of any client: it passes the same admission and costs the same
credits. With scripts the reply is streamed. Without scripts the page contains the whole reply.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from flask import Response

from shared.credits.amounts import MICRO
from shared.credits.authorization import authorize_usage
from shared.credits.usage.usage_query import Dimension, Interval
from shared.credits.usage.usage_reports import UsageCriteria, UsageReport, UsageSum, Window, scoped_usage
from shared.models.catalog import Endpoint, ModelEntry
from shared.models.dialects import Dialect, parse_chat
from shared.models.invocations import invoke, require_model_access
from web.console.charts import sparkline
from web.console.declarations import ConsoleRoutes
from web.console.forms import Form, invalid_field, require
from web.console.navigation import Group
from web.console.page_context import PageContext
from web.console.queries import WindowQuery
from web.console.spend_series import build_spend_series
from web.framework.rendering import HTML, asset_path
from web.http.negotiation import EVENT_STREAM, wants_events
from web.models.responses import rendered_response, streamed_response

routes = ConsoleRoutes("models")

MAXIMUM_TOKENS = 32_768
TITLE = "Models"
_NO_USAGE = UsageSum(
    invocations=0,
    prompt_tokens=0,
    completion_tokens=0,
    cached_tokens=0,
    cache_write_tokens=0,
    reasoning_tokens=0,
    cost=0,
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelRow:
    """A model with its usage in the window, its spend by day, and its largest user's share in percent."""

    entry: ModelEntry
    sum: UsageSum
    spark: object | None
    largest_user: tuple[str | None, int] | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reply:
    """A reply in the playground, with its cost in credits and its tokens."""

    text: str
    cost: str | None
    prompt_tokens: int
    completion_tokens: int


@routes.page(
    "/models",
    title=TITLE,
    permission=None,
    navigation=Group.AGENTS,
    summary="List models with prices and usage, and ask one",
    query=WindowQuery,
)
def show_models(context: PageContext) -> Response:
    return context.render("models.html", **_page_values(context, Window(context.call.query.window), {}))


@routes.action(
    "/models/ask",
    summary="Create a chat completion in the playground",
    rest="create_chat_completion",
    command="models ask",
    responses={200: {HTML: None, EVENT_STREAM: None}},
)
def ask_model(context: PageContext) -> Response:
    call, models = context.call, context.services.models
    # Check before the form is parsed: a caller without the permission then gets the same error for any form.
    require_model_access(context.caller)
    is_stream = wants_events(call.http)
    request = parse_chat(_body(context.form, is_stream=is_stream))
    # Read the rows of the page before the call: no thread may wait for the database while a response is deferred.
    values = {} if is_stream else _page_values(context, Window.MONTH, context.form)
    show = None if is_stream else context.prepare("models.html", **values)
    # Take the slot before invoke(): a refusal then leaves neither held credits nor a usage record.
    call.admission.hold(context.services.pools.model_calls)
    inbox = invoke(
        models.invoker,
        models.catalog.current(),
        context.caller,
        request,
        waited_seconds=call.admission.waited_seconds,
    )
    # Check access repeatedly while the reply streams, because it may be revoked meanwhile.
    watch = call.watch(require_model_access)
    if show is None:
        return streamed_response(models.invoker, inbox, Dialect.CHAT, watch, call.http.environ)
    return rendered_response(
        models.invoker, inbox, watch, call.http.environ, lambda document: show(reply=_read_reply(document))
    )


def _page_values(context: PageContext, window: Window, form: Form) -> Mapping[str, Any]:
    scope = authorize_usage(context.caller)
    entries = context.services.models.catalog.current().entries
    with context.services.database.autocommit() as session:
        by_model = scoped_usage(session, scope, UsageCriteria(window=window, group_by=(Dimension.MODEL,)))
        # The sparklines always cover 30 days: a day or a week shows no trend.
        month = UsageCriteria(window=Window.MONTH, interval=Interval.DAY, group_by=(Dimension.MODEL,))
        by_day = scoped_usage(session, scope, month)
        by_principal = UsageCriteria(window=window, group_by=(Dimension.MODEL, Dimension.PRINCIPAL))
        largest_users = _largest_users(scoped_usage(session, scope, by_principal))
        labels = context.labels(session, [principal_id for principal_id, _ in largest_users.values()])
    sums = {group.keys[0]: group.sum for group in by_model.groups}
    spent = build_spend_series(by_day.groups, by_day.starts_at, by_day.ends_at, timedelta(days=1)).by_name
    rows = [
        ModelRow(
            entry=entry,
            sum=sums.get(entry.id, _NO_USAGE),
            spark=_spark(entry.id, spent.get(entry.id)),
            largest_user=largest_users.get(entry.id),
        )
        for entry in entries
    ]
    offered = {entry.id for entry in entries}
    return {
        "title": TITLE,
        "window": window.value,
        # Models that the catalog no longer offers still have usage, so show them too.
        "gone": [(name, at) for name, at in sums.items() if name not in offered],
        "rows": sorted(rows, key=lambda row: (-row.sum.cost, -row.sum.invocations)),
        "total": by_model.total,
        "labels": labels,
        "callable": [row.entry for row in rows if row.entry.supports(Endpoint.CHAT_COMPLETIONS)],
        "more_scripts": [asset_path("playground.js")],
        "maximum_tokens": MAXIMUM_TOKENS,
        "form": form,
        "reply": None,
    }


def _largest_users(report: UsageReport) -> Mapping[str, tuple[str | None, int]]:
    """Return the principal with the highest cost for each model, and the principal's share in percent."""
    totals: dict[str, int] = {}
    largest: dict[str, tuple[str | None, int]] = {}
    for group in report.groups:
        model, principal_id = group.keys
        totals[model or "?"] = totals.get(model or "?", 0) + group.sum.cost
        # Groups are ordered by cost, highest first, so the first principal of a model is the largest user.
        largest.setdefault(model or "?", (principal_id, group.sum.cost))
    return {
        model: (principal_id, 100 * cost // totals[model])
        for model, (principal_id, cost) in largest.items()
        if totals[model]
    }


def _spark(name: str, values: Any) -> object | None:
    if not values:
        return None
    return sparkline([at / MICRO for at in values], label=f"Spend on {name} by day, 30 days")


def _body(form: Form, *, is_stream: bool) -> dict[str, Any]:
    longest = form.get("max", "1024").strip()
    # Convert only nine digits: int() of a longer text takes quadratic time.
    if not longest.isascii() or not longest.isdigit() or not 1 <= int(longest[:9]) <= MAXIMUM_TOKENS:
        raise invalid_field("max", f"must be a whole number from 1 to {MAXIMUM_TOKENS:,}")
    prompt = [{"role": "user", "content": require(form, "message")}]
    instructions = [{"role": "system", "content": form["instructions"]}] if form.get("instructions") else []
    body: dict[str, Any] = {
        "model": require(form, "model"),
        "messages": [*instructions, *prompt],
        "max_completion_tokens": int(longest),
    }
    # Request usage: only the last event of a stream has the tokens and the cost, and only if the request asks
    # for usage.
    return body | ({"stream": True, "stream_options": {"include_usage": True}} if is_stream else {})


def _read_reply(document: bytes) -> Reply:
    completion = json.loads(document)
    used = completion.get("usage") or {}
    return Reply(
        text=completion["choices"][0]["message"].get("content") or "",
        cost=used.get("cost"),
        prompt_tokens=used.get("prompt_tokens", 0),
        completion_tokens=used.get("completion_tokens", 0),
    )
