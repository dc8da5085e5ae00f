"""All file routes."""

from web.files import metadata, references, sharing, writes

ROUTES = (writes.routes, metadata.routes, references.routes, sharing.routes)
