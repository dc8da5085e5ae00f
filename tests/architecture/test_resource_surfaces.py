"""A resource has the same fields on every surface: REST, command line, console and SDK.

The REST response model is the declaration. The command line prints each field of the domain's dataclass. The console's
templates read the same dataclass, and the SDK has dataclasses of its own. A field that a surface leaves out stands in
`OMITTED` with the reason, so a new field must be shown everywhere or listed there.
"""

import dataclasses
import inspect
import typing
from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import quartermaster.resources
import quartermaster.usage
from jinja2 import Environment, nodes
from pydantic import BaseModel
from pydantic.alias_generators import to_camel

import web
from deploy.cli.commands import imports
from shared.a2a.tasks.administration import ListedTask
from shared.credits.ledger import Entry
from shared.credits.statements import Statement
from shared.credits.usage.usage_records import UsageRecord
from shared.media.importing.imports import Import
from shared.media.notifications.notification_endpoints import NotificationEndpoint
from shared.pagination import Page
from web.a2a.behavior_schemas import BehaviorBody
from web.a2a.endpoint_schemas import EndpointBody
from web.a2a.organization_tasks import OrganizationTask
from web.a2a.schedule_schemas import ScheduleBody
from web.app import ROUTES
from web.credits.budget_schemas import BudgetBody, KeyBudgetBody, KeyData
from web.credits.schemas import EntryBody, HoldBody, OrganizationCredits, UsageRecordBody, UsageSumBody
from web.credits.statements import StatementBody
from web.credits.usage_schemas import UsageBody, UsageGroupBody
from web.files import schemas as files
from web.http.schemas import PageResponse, ResponseModel
from web.identity import agent_schemas, distribution_schemas, invitation_schemas, schemas
from web.media.notification_schemas import NotificationBody, NotificationEndpointBody
from web.media.schemas import ImportBody

TEMPLATES = Path(web.__path__[0]) / "console" / "templates" / "console"
NOT_COMPARED: Mapping[str, str] = {
    "EndpointReportBody": "the result of a check, no resource",
    "InstallationBody": "the start of an installation, no resource",
    "KeyModelsBody": "a list of names",
    "NetworkSettingsBody": "its command prints it by a function of its own",
    "OrganizationEndpointBody": "its command prints the class of the distribution's endpoint",
    "IssuedOrganizationEndpoint": "its command prints the class of the distribution's endpoint",
    "OrganizationStorage": "a report, no resource",
    "RunBody": "its command prints the class of the domain with the task's address",
}
"""Response models without a comparison, and the reason."""
REST_OF_CLI: Mapping[type, type[BaseModel]] = {
    Entry: EntryBody,
    ListedTask: OrganizationTask,
    NotificationEndpoint: NotificationEndpointBody,
    Statement: StatementBody,
    UsageRecord: UsageRecordBody,
}
"""Domain classes whose route is no plain call of their function; the others are paired by `listed_pairs`."""
CONSOLE: Mapping[type[BaseModel], tuple[str, ...]] = {
    schemas.ApiKeyBody: (
        "keys.html:keys",
        "key_issued.html:key",
        "key_revoke.html:key",
        "key_models.html:key",
    ),
    schemas.AuditEventBody: ("audit.html:events.items",),
    schemas.MemberBody: ("people.html:members.items",),
    schemas.OrganizationBody: ("organizations.html:listed.items",),
    invitation_schemas.InvitationBody: ("people.html:invitations", "invited.html:invitation"),
    agent_schemas.DeploymentBody: ("agents.html:listed.items", "agent.html:deployment"),
    agent_schemas.IdentityBody: ("identities.html:identities.items",),
    agent_schemas.RoleBindingBody: ("identities.html:bindings.items",),
    distribution_schemas.DistributionBody: (
        "distributions.html:listed.items",
        "distribution.html:distribution",
    ),
    BehaviorBody: ("agent.html:behaviors",),
    ScheduleBody: ("agent.html:schedules",),
    EndpointBody: ("agent.html:endpoint",),
    OrganizationTask: (
        "tasks.html:listed.items",
        "agent.html:tasks",
        "task.html:task",
        "task_line.html:task",
    ),
    NotificationBody: ("distribution.html:notifications",),
    ImportBody: ("distribution.html:imports.items",),
    OrganizationCredits: ("ledger.html:balance", "overview_figures.html:balance", "top_up.html:balance"),
    BudgetBody: ("keys.html:budget", "budget.html:budget"),
    EntryBody: ("ledger.html:entries.items",),
    HoldBody: ("holds.html:holds.items",),
    StatementBody: ("statement.html:statement", "ledger.html:statements"),
    UsageRecordBody: ("activity.html:listed.items",),
    files.ListedGrantBody: ("file.html:links",),
    files.ReferenceBody: ("file.html:references",),
}
"""What each template shows: `template:list` for the rows of a table, `template:variable` for one resource."""
VIEWS = {
    "agent.html:report.problems", "agent.html:report.warnings", "distribution.html:codes",
    "file.html:versions", "files.html:listed.files", "macros.html:", "models.html:rows", "models.html:callable",
    "operations.html:work.backlogs", "operations.html:host.sweeps", "overview.html:action_items",
    "overview.html:principals", "statement.html:statement.lines", "storage.html:report.days",
    "task_line.html:line.entries", "keys.html:budgets", "frame.html:links", "tabs.html:",
}  # fmt: skip
"""Loops over values that a page computes, or over parts of a resource."""
SDK: Mapping[type, type[BaseModel]] = {
    quartermaster.resources.Metadata: files.Metadata,
    quartermaster.resources.Owner: files.OwnerBody,
    quartermaster.resources.File: files.FileBody,
    quartermaster.resources.FileVersion: files.VersionBody,
    quartermaster.resources.UploadedFile: files.UploadResult,
    quartermaster.resources.DeletedFile: files.DeletionBody,
    quartermaster.resources.ReadLink: files.GrantBody,
    quartermaster.resources.ListedLink: files.ListedGrantBody,
    quartermaster.resources.Reference: files.ReferenceBody,
    quartermaster.usage.UsageSum: UsageSumBody,
    quartermaster.usage.UsageGroup: UsageGroupBody,
    quartermaster.usage.UsageReport: UsageBody,
    quartermaster.usage.KeyBudget: KeyBudgetBody,
    quartermaster.usage.KeyUsage: KeyData,
}
ORGANIZATION = "a page shows one organization, named beside the navigation"
DETAILS = "a detail, shown by the command and REST"
ENDED = "the list shows links that still work"
OMITTED: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("cli", "UsageRecordBody"): {
        "object": "a member of OpenAI's API alone",
        "total_tokens": "the sum of two fields",
    },
    ("cli", "NotificationBody"): {
        "type": "named event, as in the table deliveries",
        "next_attempt_at": "named due_at, as in the table deliveries",
    },
    ("cli", "BudgetBody"): {"remaining": "a property, which the command adds"},
    ("console", "AuditEventBody"): {
        "organization_id": ORGANIZATION,
        **dict.fromkeys(("credential_id", "id", "request_id"), DETAILS),
    },
    ("console", "MemberBody"): {"organization_id": ORGANIZATION},
    ("console", "InvitationBody"): {
        "organization_id": ORGANIZATION,
        "accepted_at": "an accepted invitation is a member",
        "accepted_by": "an accepted invitation is a member",
        "created_at": "the deadline is shown instead",
    },
    ("console", "DeploymentBody"): {
        "organization_id": ORGANIZATION,
        "active_version_id": "versions are deployed by command or REST",
    },
    ("console", "IdentityBody"): {"organization_id": ORGANIZATION},
    ("console", "RoleBindingBody"): {"organization_id": ORGANIZATION, "created_at": DETAILS},
    ("console", "DistributionBody"): {
        "organization_id": ORGANIZATION,
        **dict.fromkeys(("created_at", "routes_messages"), DETAILS),
    },
    ("console", "BehaviorBody"): dict.fromkeys(
        ("deployment_id", "description", "examples", "extensions", "id", "input_modes", "instructions", "is_default",
         "model", "output_modes", "script", "tags", "updated_at"),
        "behaviors are changed by command or REST; the page names them",
    ),
    ("console", "ScheduleBody"): dict.fromkeys(
        ("behavior_id", "catch_up_limit", "created_at", "deployment_id", "disabled_at", "id", "message", "missed",
         "principal_identity_id"),
        "schedules are changed by command or REST; the page shows their next run",
    ),
    ("console", "EndpointBody"): dict.fromkeys(
        ("binding", "card_url", "created_at", "credential_header", "deployment_id", "interface_override",
         "interface_url", "resends", "streams", "updated_at"),
        "the endpoint is set by command or REST; the page shows whether it works",
    ),
    ("console", "OrganizationTask"): {
        "organization_id": ORGANIZATION,
        **dict.fromkeys(("created_at", "distribution_id"), DETAILS),
    },
    ("console", "NotificationBody"): {
        "type": "named event, as in the table deliveries",
        "next_attempt_at": "named due_at, as in the table deliveries",
        "last_attempt_at": DETAILS,
    },
    ("console", "ImportBody"): {
        "import_id": "named id, as in the table media_imports",
        **dict.fromkeys(("conversation_id", "ended_at", "version_id"), DETAILS),
    },
    ("console", "OrganizationCredits"): {
        "organization_id": ORGANIZATION,
        "suspended_by": "an action item of the overview says it",
        "storage_refused_from": "an action item of the overview says it",
        **dict.fromkeys(("overdraft", "storage_overdue_since"), DETAILS),
    },
    ("console", "BudgetBody"): {
        "organization_id": ORGANIZATION,
        "held": "part of the bar",
        "remaining": "the bar shows it",
        "subject_kind": "the label of the subject shows it",
        "created_at": DETAILS,
    },
    ("console", "EntryBody"): {"organization_id": ORGANIZATION},
    ("console", "HoldBody"): dict.fromkeys(
        ("api_key_id", "deployment_id", "distribution_id", "id", "lease_until", "provider"), DETAILS
    ),
    ("console", "StatementBody"): {"organization_id": ORGANIZATION},
    ("console", "UsageRecordBody"): {
        "object": "a member of OpenAI's API alone",
        "total_tokens": "the sum of two columns",
        **dict.fromkeys(
            ("cache_write_tokens", "cached_tokens", "corrected_at", "deployment_id", "distribution_id",
             "identity_id", "invocation_id", "reasoning_tokens", "user_id"),
            "a column of the CSV file",
        ),
    },
    ("console", "ListedGrantBody"): {
        "file_id": "the page is that of the file",
        "revoked_at": ENDED,
        "created_at": "the deadline is shown instead",
        "version_id": DETAILS,
    },
    ("sdk", "UsageGroupBody"): {"key": "the first of keys, kept for clients of an earlier version"},
    ("sdk", "UsageBody"): dict.fromkeys(("group_by", "interval", "object", "window"), "a parameter of the request"),
}  # fmt: skip
"""By surface and REST model: each field that the surface leaves out, and the reason."""
ADDED: Mapping[tuple[str, str], Mapping[str, str]] = {
    ("cli", "UsageRecordBody"): {"organization_id": "operators list records of several organizations"},
    ("cli", "HoldBody"): {"organization_id": "the path of the REST route has it"},
    ("cli", "NotificationBody"): {
        "event": "REST names it type",
        "due_at": "REST names it next_attempt_at",
        **dict.fromkeys(("destination_id", "organization_id"), "the path of the REST route has it"),
        "is_held": "REST leaves next_attempt_at out instead",
        "kind": "media or payment; the path of the REST route has it",
    },
    ("console", "NotificationBody"): {
        "event": "REST names it type",
        "due_at": "REST names it next_attempt_at",
        "is_held": "REST leaves next_attempt_at out instead",
    },
    ("console", "ImportBody"): {
        "id": "REST names it import_id",
        "file_name": "REST returns the name with the file",
    },
    ("sdk", "UploadResult"): {"availability": "set by the SDK: a new version is available"},
}
"""By surface and REST model: each name that the surface has and REST has not, and the reason."""


def listed_pairs() -> Iterator[tuple[type, type[BaseModel]]]:
    """Each dataclass of the domain, with the response model of the route that calls a function returning it."""
    yield from REST_OF_CLI.items()
    for routes in ROUTES:
        for route in routes.declared:
            if not inspect.isfunction(route.handler):
                continue
            function = inspect.getclosurevars(route.handler).nonlocals.get("act")
            for content in route.responses.values():
                if function is not None and isinstance(content, type) and issubclass(content, BaseModel):
                    returned = typing.get_type_hints(function).get("return")
                    kind = typing.get_args(returned)[0] if typing.get_origin(returned) is Page else returned
                    if dataclasses.is_dataclass(kind):
                        yield typing.cast("type", kind), item_of(content)


def item_of(model: type[BaseModel]) -> type[BaseModel]:
    """The model of a page's items, or the model itself."""
    if not issubclass(model, PageResponse):
        return model
    (name,) = model.model_fields.keys() - {"next_cursor"}
    return typing.cast("type[BaseModel]", typing.get_args(model.model_fields[name].annotation)[0])


@cache
def shown_in(template: str) -> Mapping[str, frozenset[str]]:
    """The attributes that a template reads: by the list of each loop, and by the name of each variable."""
    shown: dict[str, set[str]] = defaultdict(set)
    parsed = Environment(autoescape=True).parse((TEMPLATES / template).read_text())
    for attribute in parsed.find_all(nodes.Getattr):
        if isinstance(attribute.node, nodes.Name):
            shown[attribute.node.name].add(attribute.attr)
    for loop in parsed.find_all(nodes.For):
        if isinstance(loop.target, nodes.Name):
            read = {at.attr for part in loop.body for at in part.find_all(nodes.Getattr)
                    if isinstance(at.node, nodes.Name) and at.node.name == loop.target.name}  # fmt: skip
            shown[dotted(loop.iter)] |= read
    return {name: frozenset(read) for name, read in shown.items()}


def dotted(node: nodes.Node) -> str:
    """The name of an expression such as `listed.items`; empty for any other."""
    if isinstance(node, nodes.Getattr):
        return f"{dotted(node.node)}.{node.attr}"
    return node.name if isinstance(node, nodes.Name) else ""


def check(surface: str, model: type[BaseModel], shown: set[str]) -> None:
    """Compare what a surface shows with the fields of the REST model."""
    key = (surface, model.__name__)
    fields = set(model.model_fields)
    assert shown - fields == set(ADDED.get(key, {})), f"{key} has names that REST has not: see ADDED"
    assert fields - shown == set(OMITTED.get(key, {})), f"{key} leaves fields of REST out: see OMITTED"


@pytest.mark.parametrize(("kind", "model"), list(dict.fromkeys(listed_pairs())), ids=lambda at: at.__name__)
def test_the_command_line_has_the_fields_of_rest(kind: type, model: type[BaseModel]) -> None:
    check("cli", model, {field.name for field in dataclasses.fields(kind)})


def test_the_command_of_imports_has_the_fields_of_rest() -> None:
    # It prints chosen fields of the class, because the source URL may contain a secret.
    printed = imports._document(typing.cast("Any", Mock(spec_set=Import, id=None)))
    assert printed.keys() == {to_camel(name) for name in ImportBody.model_fields}


@pytest.mark.parametrize(("model", "places"), CONSOLE.items(), ids=lambda at: getattr(at, "__name__", ""))
def test_the_console_has_the_fields_of_rest(model: type[BaseModel], places: tuple[str, ...]) -> None:
    shown: set[str] = set()
    for place in places:
        template, _, name = place.partition(":")
        shown |= shown_in(template)[name]
    check("console", model, shown)


@pytest.mark.parametrize(("kind", "model"), SDK.items(), ids=lambda at: at.__name__)
def test_the_sdk_has_the_fields_of_rest(kind: type, model: type[BaseModel]) -> None:
    wire = {at.metadata.get("wire", "") or at.name: at for at in dataclasses.fields(kind)}
    names = {to_camel(name): name for name in model.model_fields}
    check("sdk", model, {names.get(name, name) for name in wire})


def test_each_resource_of_rest_is_compared() -> None:
    paired = {model for _, model in listed_pairs()} | set(CONSOLE) | set(SDK.values())
    contents = [at for routes in ROUTES for route in routes.declared for at in route.responses.values()]
    models = [at for at in contents if isinstance(at, type) and issubclass(at, ResponseModel | PageResponse)]
    left = {item_of(at).__name__ for at in models if not issubclass(item_of(at), tuple(paired))}
    assert left == set(NOT_COMPARED), (
        "pair its domain class in REST_OF_CLI, or give the reason in NOT_COMPARED"
    )


def test_each_loop_of_a_template_is_compared() -> None:
    compared = {place for places in CONSOLE.values() for place in places}
    loops = {f"{path.name}:{dotted(loop.iter)}" for path in TEMPLATES.glob("*.html")
             for loop in Environment(autoescape=True).parse(path.read_text()).find_all(nodes.For)
             if isinstance(loop.target, nodes.Name)
             and any(isinstance(at.node, nodes.Name) and at.node.name == loop.target.name
                     for part in loop.body for at in part.find_all(nodes.Getattr))}  # fmt: skip
    assert loops - compared - VIEWS == set(), "name its response model in CONSOLE"


def test_each_dataclass_of_the_sdk_is_compared() -> None:
    modules = (quartermaster.resources, quartermaster.usage)
    kinds = {at for module in modules for at in vars(module).values()
             if dataclasses.is_dataclass(at) and typing.cast("type", at).__module__ == module.__name__}  # fmt: skip
    assert kinds == set(SDK), "name its response model in SDK"
