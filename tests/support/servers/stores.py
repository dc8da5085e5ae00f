"""Open the store of some settings without the check against the database, which tests of one module share."""

from shared.config.settings import Settings
from shared.files.blobs import S3Access, open_blob_store
from shared.files.blobs.base import BlobStore


def open_any_store(settings: Settings) -> BlobStore:
    """Return the store at BLOB_STORE."""
    key_id, key = settings.s3_access_key_id, settings.s3_secret_access_key
    access = S3Access(
        endpoint_url=settings.s3_endpoint_url,
        region=settings.s3_region,
        access_key_id=None if key_id is None else key_id.get_secret_value(),
        secret_access_key=None if key is None else key.get_secret_value(),
    )
    return open_blob_store(settings.blob_store, s3=access)
