"""All file routes."""

from web.files import metadata, references, resumable, sharing, writes

ROUTES = (writes.routes, resumable.routes, metadata.routes, references.routes, sharing.routes)
