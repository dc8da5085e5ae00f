"""What all administrative operations have in common: a user's key, JSON, pages, 201 with a Location.

Each handler asks for `call.actor` first, so that a deployment is turned away before its body is read, and opens its
transaction last, so that no connection waits for bytes. What is allowed, and to whom, is `shared/identity`'s alone.

A creation that is repeated makes a second resource: administration takes no idempotency key. Where that would hurt
(members, users, bindings) the resource itself is unique, and the repetition is answered 409.
"""

from __future__ import annotations

from collections.abc import Callable

from pydantic import BaseModel

from shared.body_errors import ContentTooLarge, UploadTimeout
from shared.errors import DomainError, PermissionDenied, Unavailable, ValidationFailed
from shared.identity.errors import ResourceNotFound
from web.authentication import Authentication
from web.calls import Answer, Call
from web.http.requests import FieldRequired, MalformedJson, UnsupportedMediaType
from web.http.schemas import PageQuery
from web.routing import Handler, Routes

Declaration = Callable[[Handler], Handler]
Errors = tuple[type[DomainError], ...]

NO_STORE = {"Cache-Control": "no-store"}
_REFUSED: Errors = (PermissionDenied, ResourceNotFound, Unavailable)
JSON_BODY: Errors = (
    MalformedJson,
    UnsupportedMediaType,
    ContentTooLarge,
    UploadTimeout,
    FieldRequired,
    ValidationFailed,
)


class AdministrationRoutes(Routes):
    """Administrative operations, declared by what they do."""

    def reads(self, path: str, shown: type[BaseModel]) -> Declaration:
        """Declare a GET of one resource."""
        return self._declare("GET", path, {200: shown}, ())

    def lists(self, path: str, page: type[BaseModel], query: type[BaseModel] = PageQuery) -> Declaration:
        """Declare a GET of a page of resources."""
        return self._declare("GET", path, {200: page}, (ValidationFailed,), query=query)

    def creates(
        self, path: str, sent: type[BaseModel], shown: type[BaseModel], *errors: type[DomainError]
    ) -> Declaration:
        """Declare a POST that makes a resource."""
        return self._declare("POST", path, {201: shown}, (*JSON_BODY, *errors), body=sent)

    def changes(
        self,
        method: str,
        path: str,
        sent: type[BaseModel],
        shown: type[BaseModel],
        *errors: type[DomainError],
    ) -> Declaration:
        """Declare a PUT or PATCH."""
        return self._declare(method, path, {200: shown}, (*JSON_BODY, *errors), body=sent)

    def acts(
        self,
        path: str,
        shown: type[BaseModel],
        *errors: type[DomainError],
        query: type[BaseModel] | None = None,
    ) -> Declaration:
        """Declare a POST that does something to a resource and takes no body."""
        refused = (*errors, ValidationFailed) if query else errors
        return self._declare("POST", path, {200: shown}, refused, query=query)

    def removes(self, path: str, *errors: type[DomainError]) -> Declaration:
        """Declare a DELETE."""
        return self._declare("DELETE", path, {204: None}, errors)

    def _declare(
        self,
        method: str,
        path: str,
        answers: dict[int, type[BaseModel] | str | None],
        errors: Errors,
        *,
        query: type[BaseModel] | None = None,
        body: type[BaseModel] | None = None,
    ) -> Declaration:
        return self.operation(
            method,
            f"/admin{path}",
            authentication=Authentication.CALLER,
            answers=answers,
            errors=(*_REFUSED, *errors),
            query=query,
            body=body,
        )


def created(call: Call, body: BaseModel, path: str) -> Answer:
    """Answer 201 with the new resource, which may hold a secret that is shown only now, and where it is."""
    location = f"{call.services.settings.base_url}/admin{path}"
    return Answer(body=body, status=201, headers={"Location": location, **NO_STORE})
