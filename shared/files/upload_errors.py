"""What is wrong with an upload's bytes: form, size, digest, pace. A body that raises one leaves nothing stored."""

from shared.errors import DomainError, Kind


class FilePartRequired(DomainError):
    """The body must hold exactly one part, named `file`, with a file name and a media type."""

    code = "file_part_required"
    kind = Kind.INVALID


class ByteSizeMismatch(DomainError):
    """The content is not as long as byteSize says."""

    code = "byte_size_mismatch"
    kind = Kind.INVALID


class DigestMismatch(DomainError):
    """The bytes received do not have the digest that was sent with them."""

    code = "digest_mismatch"
    kind = Kind.INVALID


class ContentTooLarge(DomainError):
    """The content is larger than this service stores."""

    code = "content_too_large"
    kind = Kind.TOO_LARGE


class UploadTimeout(DomainError):
    """The body was sent too slowly and has been cut off; nothing was stored."""

    code = "upload_timeout"
    kind = Kind.TOO_SLOW
