"""Errors of the files domain (docs/specification/wire.md#errors).

From `FilePartRequired` on they are errors of the content that is sent: a request that raises one stores nothing.
"""

from shared.errors import DomainError, Kind


class FileNotFound(DomainError):
    """The file does not exist, or this caller may not read its owner's files. `GET /files` lists the readable ones."""

    code = "file_not_found"
    kind = Kind.NOT_FOUND


class VersionNotFound(DomainError):
    """The file has no such version."""

    code = "version_not_found"
    kind = Kind.NOT_FOUND


class ReferenceNotFound(DomainError):
    """The file has no such reference."""

    code = "reference_not_found"
    kind = Kind.NOT_FOUND


class GrantNotFound(DomainError):
    """This link does not exist."""

    code = "grant_not_found"
    kind = Kind.NOT_FOUND


class GrantExpired(DomainError):
    """This link has expired, was revoked, or its content has ended."""

    code = "grant_expired"
    kind = Kind.GONE


class FileExpired(DomainError):
    """The file's retention has ended; its content is gone and cannot be restored."""

    code = "file_expired"
    kind = Kind.GONE


class FileDeleted(DomainError):
    """The file was deleted; its content is gone and cannot be restored."""

    code = "file_deleted"
    kind = Kind.GONE


class FilePending(DomainError):
    """The content is still being stored; retry in a moment."""

    code = "file_pending"
    kind = Kind.CONFLICT

    def __init__(self) -> None:
        super().__init__(retry_after_seconds=1)


class FileReferenced(DomainError):
    """The file is referenced; remove the references first."""

    code = "file_referenced"
    kind = Kind.CONFLICT


class OperationConflict(DomainError):
    """This operationId was used for a different request; use a new operationId for different content."""

    code = "operation_conflict"
    kind = Kind.CONFLICT


class OperationInProgress(DomainError):
    """An earlier attempt with this operationId is still running; retry to get its result."""

    code = "operation_in_progress"
    kind = Kind.CONFLICT

    def __init__(self) -> None:
        super().__init__(retry_after_seconds=1)


class VersionMismatch(DomainError):
    """The expected version or revision is not the current one; read the file and retry with its current version."""

    code = "version_mismatch"
    kind = Kind.PRECONDITION_FAILED


class PreconditionRequired(DomainError):
    """A replace must state expectedVersionId and expectedRevision."""

    code = "precondition_required"
    kind = Kind.PRECONDITION_REQUIRED


class RetentionShortened(DomainError):
    """A renewal cannot move the retention deadline to an earlier time."""

    code = "retention_shortened"
    kind = Kind.CONFLICT


class RetentionIsIndefinite(DomainError):
    """Indefinite retention cannot be changed back to a deadline."""

    code = "retention_is_indefinite"
    kind = Kind.CONFLICT


class RetentionRenewalNotSupported(DomainError):
    """Files of this purpose cannot be renewed."""

    code = "retention_renewal_not_supported"
    kind = Kind.CONFLICT


class ReplaceNotSupported(DomainError):
    """Files of this purpose cannot be replaced."""

    code = "replace_not_supported"
    kind = Kind.CONFLICT


class UploadNotFound(DomainError):
    """The caller has no resumable upload with this id."""

    code = "upload_not_found"
    kind = Kind.NOT_FOUND


class UploadEnded(DomainError):
    """The resumable upload has expired or was cancelled; begin it again with the same operationId."""

    code = "upload_ended"
    kind = Kind.GONE


class MismatchingUploadOffset(DomainError):
    """The content does not begin at the upload's offset; get the offset and continue from there."""

    code = "mismatching_upload_offset"
    kind = Kind.CONFLICT


class InconsistentUploadLength(DomainError):
    """The content, or the length that was announced, differs from byteSize; what was stored before stays."""

    code = "inconsistent_upload_length"
    kind = Kind.MALFORMED


class TooManyUploads(DomainError):
    """Too many resumable uploads are unfinished; finish or cancel some."""

    code = "too_many_uploads"
    kind = Kind.LIMITED


class FilePartRequired(DomainError):
    """The body must hold exactly one part, named `file`, with a file name and a media type."""

    code = "file_part_required"
    kind = Kind.INVALID


class ByteSizeMismatch(DomainError):
    """The content's length differs from byteSize."""

    code = "byte_size_mismatch"
    kind = Kind.INVALID


class DigestMismatch(DomainError):
    """The content does not match the digest that was sent with it."""

    code = "digest_mismatch"
    kind = Kind.INVALID


class ContentTooLarge(DomainError):
    """The content is larger than the service's limit."""

    code = "content_too_large"
    kind = Kind.TOO_LARGE


class UploadTimeout(DomainError):
    """The body was sent too slowly and was aborted; nothing was stored."""

    code = "upload_timeout"
    kind = Kind.TOO_SLOW
