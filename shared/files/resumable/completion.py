"""Complete resumable uploads: store the pieces as one version, by the same steps as an upload in one request.

Permission, credit, deadline, expectations and operationId are checked again, and one transaction inserts the version.
After a crash before its commit, the pieces still exist and the next attempt completes the upload. After its commit, a
retry with the same operationId returns the result.
"""

from contextlib import suppress
from functools import partial

from shared import failpoints
from shared.db.database import Database
from shared.errors import DomainError
from shared.files.access import Revalidate
from shared.files.blobs.base import BlobStore
from shared.files.errors import DigestMismatch, InconsistentUploadLength, OperationConflict
from shared.files.idempotency import Outcome, Prechecked, replayed_receipt
from shared.files.replaces import ReplaceRequest, precheck_replace, replace
from shared.files.resources import Receipt
from shared.files.resumable.pieces import assemble
from shared.files.resumable.uploads import DeclaredContent, Request, ResumableUpload, UploadState, end
from shared.files.uploads import precheck_upload, upload
from shared.identity.access.authorization import Actor
from shared.identity.access.callers import Caller


def precheck(database: Database, store: BlobStore, caller: Caller, request: Request) -> Prechecked:
    """Check an upload's parameters before content is received. Raises the errors of `upload` and `replace`."""
    if isinstance(request, ReplaceRequest):
        return precheck_replace(database, store, caller, request)[1]
    return precheck_upload(database, caller, request)[1]


def replay_without_content(store: BlobStore, outcome: Outcome, declared: DeclaredContent) -> Receipt:
    """Return an operation's result for a request without content.

    Raises OperationConflict if the request declares other content than the operation stored.
    """
    version = outcome.version
    same = (version.file_name, version.media_type) == (declared.file_name, declared.media_type)
    if not same or declared.sha256 not in (None, version.content_sha256):
        raise OperationConflict
    return replayed_receipt(store, outcome)


def complete(
    database: Database,
    store: BlobStore,
    actor: Actor,
    resumable: ResumableUpload,
    revalidate: Revalidate,
) -> Receipt:
    """Store the content as a version. If the content does not have the declared digest, cancel the upload.

    The actor's caller must be bound (`uploads.bound_caller`). Raises InconsistentUploadLength, and as `upload` and
    `replace` do.
    """
    request = resumable.request
    # The upload is complete, so the client repeats its last request because the response was lost. Return the result.
    if resumable.is_finished:
        prechecked = precheck(database, store, actor.caller, request)
        if prechecked.outcome is None:
            raise OperationConflict
        return replay_without_content(store, prechecked.outcome, resumable.declared)
    if resumable.received_bytes != request.byte_size:
        raise InconsistentUploadLength
    receive = partial(assemble, database, store, resumable)
    try:
        if isinstance(request, ReplaceRequest):
            receipt = replace(database, store, actor, request, receive, revalidate=revalidate)
        else:
            receipt = upload(database, store, actor.caller, request, receive, revalidate=revalidate)
    # Cancel the upload: a retry would read the same pieces, so only a new upload can send the right content.
    except DigestMismatch:
        end(database, resumable.id, UploadState.CANCELLED)
        raise
    failpoints.hit("resumable.completed")
    with suppress(DomainError):  # the version is stored; if this fails, the pieces expire with the upload
        end(database, resumable.id, UploadState.FINISHED)
    return receipt
