"""The pages of files: search, show, share by links that expire, renew and delete."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal
from urllib.parse import urlencode
from uuid import UUID

from flask import Response
from pydantic import create_model

from shared.files import access, deletion, grants, retention
from shared.files.filters import FILTERS, FileFilter, FilterDeclaration, FormField
from shared.files.listing import list_files
from shared.files.references import list_references
from shared.files.resources import Availability, File
from shared.identity.access.permissions import Permission
from shared.ids import new_id
from web.console.charts import retention_bar
from web.console.declarations import ConsoleRoutes, go_to
from web.console.forms import choose, invalid_field, read_day, read_id
from web.console.navigation import Group
from web.console.page_context import PageContext
from web.console.previews import find_preview
from web.console.queries import ROWS, CursorQuery, FilterText
from web.files.presentation import Presentation
from web.files.responses import actor_of, content_url, pending
from web.files.schemas import ContentQuery
from web.files.sharing import send_content

routes = ConsoleRoutes("files")

PAGE = "/console/files"
# choose() uses the first as default: a link lasts an hour unless the user chooses a longer time.
LIFETIMES = {"3600": "an hour", "21600": "6 hours", "86400": "a day"}
# The number of versions and references of a file has no limit, so the page shows the newest (decision:
# pages-of-versions).
_SHOWN_GRANTS, _SHOWN_VERSIONS, _SHOWN_REFERENCES = 20, 20, 20


class FileFormQuery(CursorQuery):
    """The query of the list. `FilesQuery` adds a field for each filter that has a form, empty without a choice."""

    def file_filter(self) -> FileFilter:
        """Return the filter of the domain. Raises ValidationFailed if a day is invalid."""
        sent = ((each, form, getattr(self, form.name).strip()) for each, form in _FORM_FIELDS)
        return FileFilter(**{each.name: _read(each, form, value) for each, form, value in sent if value})

    @property
    def filters(self) -> str:
        """The query string of this filter, for the link to older files."""
        chosen = self.model_dump(exclude={"cursor"})
        return urlencode({name: value for name, value in chosen.items() if value})


def _read(declared: FilterDeclaration, form: FormField, value: str) -> Any:
    if declared.kind is datetime:
        return read_day(value, form.name)
    return declared.kind(value)


def _choices(declared: FilterDeclaration, form: FormField) -> Sequence[str]:
    return form.choices or declared.choices


def _form_type(declared: FilterDeclaration, form: FormField) -> Any:
    choices = _choices(declared, form)
    return Literal[("", *choices)] if choices else FilterText


_FORM_FIELDS = [(each, each.form) for each in FILTERS if each.form is not None]
_QUERY_FIELDS: dict[str, Any] = {form.name: (_form_type(each, form), "") for each, form in _FORM_FIELDS}
# Create the fields from the declarations that also define REST's parameters, so that a new filter is in both.
FilesQuery = create_model(
    "FilesQuery", __base__=FileFormQuery, __doc__=FileFormQuery.__doc__, **_QUERY_FIELDS
)
FORM = [
    (form, _choices(each, form), "date" if each.kind is datetime else "search") for each, form in _FORM_FIELDS
]
"""The fields of the form, in order. Each has its choices, and the type of its input if it has no choices."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Retention:
    """The deadline of a file, and a bar that shows how much of its retention time has passed."""

    ends_at: datetime
    bar: object


@routes.page(
    "/files",
    title="Files",
    permission=None,
    navigation=Group.STORAGE,
    summary="List files, newest first",
    query=FilesQuery,
)
def show_files(context: PageContext) -> Response:
    query: FileFormQuery = context.call.query
    known = context.organization_id
    with context.services.database.autocommit() as session:
        listed = list_files(
            session,
            context.caller,
            query.file_filter(),
            cursor=query.cursor,
            limit=ROWS,
            pending=pending(context.call),
        )
        labels = context.labels(session, [at.owner_id for at in listed.files])
    return context.render("files.html", listed=listed, labels=labels, query=query, form=FORM, known=known)


@routes.page(
    "/files/<id:file_id>",
    title="File",
    permission=None,
    navigation="/files",
    summary="Show a file with its versions, links and references",
)
def show_file(context: PageContext, file_id: UUID) -> Response:
    with context.services.database.autocommit() as session:
        file = access.get_file(
            session, context.caller, file_id, Permission.FILE_READ, pending=pending(context.call)
        )
        may_share = _may(context, Permission.FILE_UPDATE, file)
        links = (
            grants.list_grants(
                session, actor=actor_of(context.call), file_id=file_id, limit=_SHOWN_GRANTS
            ).items
            if may_share
            else ()
        )
        versions = access.list_versions(session, file_id, limit=_SHOWN_VERSIONS).items
        # Read one row more than the page shows, to find out whether there are more.
        references = list_references(session, file_id, limit=_SHOWN_REFERENCES + 1)
        labels = context.labels(session, [file.owner_id, *(at.created_by for at in links)])
    return context.render(
        "file.html",
        file=file,
        versions=versions,
        preview=find_preview(file, context.services.blobs),
        # Show active links only: the list also contains links that expired or were revoked.
        links=[at for at in links if at.revoked_at is None and at.access_expires_at > context.now],
        references=references[:_SHOWN_REFERENCES],
        has_more_references=len(references) > _SHOWN_REFERENCES,
        labels=labels,
        retention=_retention(file, context.now),
        may_share=may_share and file.availability is Availability.AVAILABLE,
        may_renew=retention.can_renew(context.caller, file) and file.retention_expires_at is not None,
        may_delete=_may(context, Permission.FILE_DELETE, file) and file.ended_at is None,
        lifetimes=LIFETIMES,
    )


@routes.download(
    "/files/<id:file_id>/content",
    permission=None,
    summary="Download a file's content",
    query=ContentQuery,
    responses={200: "*/*"},
)
def download(context: PageContext, file_id: UUID) -> Response:
    return send_content(context.call, file_id, Presentation.PRIVATE)


@routes.action(
    "/files/<id:file_id>/share",
    summary="Create a read grant for a version",
    rest="create_grant",
    command="files share",
    step_up=PAGE,
)
def share(context: PageContext, file_id: UUID) -> Response:
    lifetime_seconds = int(choose(context.form, "life", tuple(LIFETIMES)))
    version_id = read_id(context.form, "version")
    grant = grants.create_grant(
        context.services.database, actor_of(context.call), file_id, version_id, lifetime_seconds
    )
    link = f"{content_url(context.call, file_id)}?grant={grant.token}"
    return context.render("shared.html", grant=grant, link=link)


@routes.action(
    "/files/<id:file_id>/links/<id:grant_id>/revoke",
    summary="Revoke a read grant",
    rest="revoke_grant",
    command="read-grants revoke",
)
def revoke_link(context: PageContext, file_id: UUID, grant_id: UUID) -> Response:
    with context.services.database.transaction() as session:
        grants.revoke_grant(session, actor=actor_of(context.call), file_id=file_id, grant_id=grant_id)
    return go_to(f"{PAGE}/{file_id}")


@routes.action(
    "/files/<id:file_id>/retention",
    summary="Renew a file's retention",
    rest="renew_retention",
    command="files renew",
    step_up=PAGE,
)
def renew(context: PageContext, file_id: UUID) -> Response:
    until = context.form.get("until")
    if until is None and context.form.get("for") != "ever":
        raise invalid_field("until", "is required unless the file is kept forever")
    deadline = None if until is None else read_day(until, "until")
    retention.renew(
        context.services.database, actor_of(context.call), file_id, deadline, pending=pending(context.call)
    )
    return go_to(f"{PAGE}/{file_id}")


@routes.action(
    "/files/<id:file_id>/delete",
    summary="Delete a file and all its versions",
    rest="delete_file",
    command="files rm",
    step_up=PAGE,
)
def delete(context: PageContext, file_id: UUID) -> Response:
    with context.services.database.autocommit() as session:
        file = access.get_file(
            session, context.caller, file_id, Permission.FILE_DELETE, pending=pending(context.call)
        )
    # The user must type the name, because a deletion is final. Unlike a dialog, this needs no script.
    if context.form.get("name", "").strip() != file.version.file_name:
        raise invalid_field("name", f"must be the name of this file: {file.version.file_name}")
    # A form has no operation id, so each POST is a new operation with a new id.
    deletion.delete(context.services.database, actor_of(context.call), file_id, new_id())
    return go_to(PAGE)


def _may(context: PageContext, permission: Permission, file: File) -> bool:
    held = context.caller.permissions_on(organization_id=file.organization_id, owner_id=file.owner_id)
    return permission in held


def _retention(file: File, now: datetime) -> Retention | None:
    if file.retention_expires_at is None:
        return None
    began, ends = file.version.created_at, file.retention_expires_at
    # If the deadline is the time of the upload, the span is zero: do not divide by it.
    whole = (ends - began).total_seconds() or 1
    share = (now - began).total_seconds() / whole
    passed = f"{max(0, min(100, round(share * 100)))} % of the retention has passed"
    return Retention(ends_at=ends, bar=retention_bar(share, label=passed))
