"""Routes of references, which prevent the deletion of a file (docs/specification/files.md#references)."""

from uuid import UUID

from shared.files import access, errors, references
from shared.files.references import ReferenceKind
from shared.identity.access.permissions import Permission
from web.files import schemas
from web.files.responses import ENDED, FOUND, actor_of, pending
from web.framework.authentication import Authentication
from web.framework.calls import JsonResponse, RequestContext
from web.framework.routes import Routes

routes = Routes("files")


@routes.route(
    "GET",
    "/files/<id:file_id>/references",
    summary="List the references to a file",
    authentication=Authentication.CALLER,
    responses={200: schemas.ReferenceList},
    errors=FOUND,
)
def list_references(call: RequestContext, file_id: UUID) -> JsonResponse:
    with call.services.database.autocommit() as session:
        access.get_file(session, call.caller, file_id, Permission.FILE_READ, pending=pending(call))
        found = references.list_references(session, file_id)
    return JsonResponse(body=schemas.ReferenceList(references=[schemas.ReferenceBody.of(at) for at in found]))


@routes.route(
    "PUT",
    "/files/<id:file_id>/references/<reference_kind:kind>/<reference_id:reference_id>",
    summary="Add a reference to a file, which then cannot be deleted",
    authentication=Authentication.CALLER,
    responses={200: schemas.ReferenceBody, 201: schemas.ReferenceBody},
    errors=(*FOUND, *ENDED),
)
def put_reference(
    call: RequestContext, file_id: UUID, kind: ReferenceKind, reference_id: str
) -> JsonResponse:
    reference, is_new = references.add_reference(
        call.services.database, call.caller, file_id, kind, reference_id
    )
    return JsonResponse(body=schemas.ReferenceBody.of(reference), status=201 if is_new else 200)


@routes.route(
    "DELETE",
    "/files/<id:file_id>/references/<reference_kind:kind>/<reference_id:reference_id>",
    summary="Delete a reference to a file",
    authentication=Authentication.CALLER,
    responses={204: None},
    errors=(*FOUND, errors.ReferenceNotFound),
)
def delete_reference(
    call: RequestContext, file_id: UUID, kind: ReferenceKind, reference_id: str
) -> JsonResponse:
    references.remove_reference(call.services.database, actor_of(call), file_id, kind, reference_id)
    return JsonResponse(status=204)
