"""The routes of files: metadata, writes, resumable uploads, sharing and references."""

from web.files import metadata, references, resumable, sharing, writes

ROUTES = (writes.routes, resumable.routes, metadata.routes, references.routes, sharing.routes)
