"""What a few administrative commands send and show otherwise than their parameters and answers are, over REST."""

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
        raise click.UsageError("Operators are created beside the installation only.")
    return _without(given, "is_operator")


def _ask_usage(given: Parameters) -> Parameters:
    require_active(given["organization_id"])
    span = {"from": given["starts_at"], "to": given["ends_at"]}
    only = {name: str(value) for name, value in given["only"]}
    kept = {"window": given["window"], "interval": given["interval"]}
    return {**kept, **span, "group_by": ",".join(given["group_by"]) or None, **only}


def _ask_records(given: Parameters) -> Parameters:
    require_active(given["organization_id"])
    renamed = {
        "from": given["starts_at"],
        "to": given["ends_at"],
        "principal": given["principal_id"],
        "key": given["api_key_id"],
    }
    return {**{name: given[name] for name in ("model", "status", "cursor", "limit")}, **renamed}


def _respell(answer: Parameters, name: str) -> Parameters:
    """Spell a report as the command does where it reads the database."""
    left_out = ("object", "data", "window", "interval", "group_by")
    report: Parameters = document_of(
        {**_without(answer, *left_out), name: [_without(at, "key", "object") for at in answer["data"]]}
    )
    return report


def _show_amounts(given: Parameters) -> Parameters:
    return {name: format_credits(value) if isinstance(value, int) else value for name, value in given.items()}


def _statement_page(given: Parameters) -> Parameters:
    return {**_without(given, "before"), "cursor": _month(given["before"]), "limit": given["limit"]}


def _statement_month(given: Parameters) -> Parameters:
    return {**given, "month": _month(given["month"])}


def _storage_question(given: Parameters) -> Parameters:
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
    "credits top-up": _show_amounts,
    "credits adjust": _show_amounts,
    "credits set-policy": _show_amounts,
    "credits list-statements": _statement_page,
    "credits show-statement": _statement_month,
    "credits list-storage": _storage_question,
    "networks install": _route_account,
    "networks route": _route_account,
    "budgets create": _show_amounts,
    "budgets set-amount": _show_amounts,
    "usage": _ask_usage,
    "usage-records list": _ask_records,
}


SHOWN: Mapping[str, Callable[[Parameters], Parameters]] = {
    "usage": lambda answer: _respell(answer, "groups"),
    "usage-records list": lambda answer: _respell(answer, "usage_records"),
}
