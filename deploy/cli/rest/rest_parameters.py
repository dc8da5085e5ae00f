"""Convert parameters and responses of administrative commands whose REST routes use other names or formats."""

import json
from collections.abc import Callable, Mapping
from typing import Any

import click

from deploy.cli.client.rest_client import require_active
from deploy.cli.command_context import document_of
from shared.credits.amounts import format_credits
from shared.identity.access.roles import ScopeKind

Parameters = dict[str, Any]


def _read_url(given: Parameters) -> Parameters:
    return {**_without(given, "source"), "url": given["source"].read().strip()}


def _read_settings(given: Parameters) -> Parameters:
    return {**_without(given, "source"), "settings": json.load(given["source"])}


def _read_endpoint(given: Parameters) -> Parameters:
    header = given["header"]
    credential = {"header": header, "value": given["source"].read().strip()} if header else None
    kept = _without(given, "source", "header", "interface_override")
    return {**kept, "interface_url": given["interface_override"], "credential": credential}


def _read_script(given: Parameters) -> Parameters:
    return {**given, "script": given["script"].read_text(encoding="utf-8") if given["script"] else None}


def _read_message(given: Parameters) -> Parameters:
    from deploy.cli.message_input import read_message

    message = read_message(given["text"], given["message"])
    return {**_without(given, "text"), "message": message}


def _bind_identity(given: Parameters) -> Parameters:
    over = given["owner_id"]
    scope = ScopeKind.IDENTITY if over else ScopeKind.ORGANIZATION
    kept = _without(given, "identity_id", "owner_id")
    subject = {"subject_identity_id": given["identity_id"]}
    return {**kept, **subject, "scope_kind": scope.value, "scope_id": over or given["organization_id"]}


def _bind_user(given: Parameters) -> Parameters:
    kept = _without(given, "user_id", "owner_id")
    return {
        **kept,
        "subject_user_id": given["user_id"],
        "scope_kind": ScopeKind.IDENTITY.value,
        "scope_id": given["owner_id"],
    }


def _create_user(given: Parameters) -> Parameters:
    if given["is_operator"]:
        raise click.UsageError("--operator does not work over REST: run it on the installation's host.")
    return _without(given, "is_operator")


def _usage_query(given: Parameters) -> Parameters:
    # Require the active organization: the route has no parameter for the organization, and would silently return
    # the active organization's usage for any other organization.
    require_active(given["organization_id"])
    span = {"from": given["starts_at"], "to": given["ends_at"]}
    only = {name: str(value) for name, value in given["only"]}
    kept = {"window": given["window"], "interval": given["interval"]}
    return {**kept, **span, "group_by": ",".join(given["group_by"]) or None, **only}


def _usage_records_query(given: Parameters) -> Parameters:
    require_active(given["organization_id"])
    renamed = {
        "from": given["starts_at"],
        "to": given["ends_at"],
        "principal": given["principal_id"],
        "key": given["api_key_id"],
    }
    return {**{name: given[name] for name in ("model", "status", "cursor", "limit")}, **renamed}


def _to_command_format(response: Parameters, name: str) -> Parameters:
    """Return a report of a `/v1` route with the member names that the command prints over the database."""
    left_out = ("object", "data", "window", "interval", "group_by")
    report: Parameters = document_of(
        {**_without(response, *left_out), name: [_without(at, "key", "object") for at in response["data"]]}
    )
    return report


def _format_amounts(given: Parameters) -> Parameters:
    # Convert the parameters, which are in µcr: the routes accept decimal credits as text.
    return {name: format_credits(value) if isinstance(value, int) else value for name, value in given.items()}


def _statement_page(given: Parameters) -> Parameters:
    return {**_without(given, "before"), "cursor": _month(given["before"]), "limit": given["limit"]}


def _statement_month(given: Parameters) -> Parameters:
    return {**given, "month": _month(given["month"])}


def _storage_query(given: Parameters) -> Parameters:
    return {**given, "month": _month(given["month"]), "group_by": ",".join(given["group_by"]) or None}


def _route_account(given: Parameters) -> Parameters:
    return {**_without(given, "target_id"), "target_distribution_id": given["target_id"]}


def _month(month: Any) -> str | None:
    return f"{month:%Y-%m}" if month else None


def _without(given: Parameters, *names: str) -> Parameters:
    return {name: value for name, value in given.items() if name not in names}


PREPARED: Mapping[str, Callable[[Parameters], Parameters]] = {
    "notifications set-endpoint": _read_url,
    "notifications set-organization-endpoint": _read_url,
    "networks set": _read_settings,
    "endpoints set": _read_endpoint,
    "behaviors create": _read_script,
    "schedules create": _read_message,
    "role-bindings bind-identity": _bind_identity,
    "role-bindings bind-user": _bind_user,
    "users create": _create_user,
    "credits top-up": _format_amounts,
    "credits adjust": _format_amounts,
    "credits set-policy": _format_amounts,
    "credits list-statements": _statement_page,
    "credits show-statement": _statement_month,
    "credits list-storage": _storage_query,
    "networks install": _route_account,
    "networks route": _route_account,
    "budgets create": _format_amounts,
    "budgets set-amount": _format_amounts,
    "usage": _usage_query,
    "usage-records list": _usage_records_query,
}


SHOWN: Mapping[str, Callable[[Parameters], Parameters]] = {
    "usage": lambda response: _to_command_format(response, "groups"),
    "usage-records list": lambda response: _to_command_format(response, "usage_records"),
}
