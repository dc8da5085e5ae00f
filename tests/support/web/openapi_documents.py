"""The OpenAPI document, created once for a run, because it depends on the code alone."""

import json
from functools import cache
from typing import Any

from web.app import ROUTES
from web.openapi.document import describe


@cache
def openapi_document() -> Any:
    """Return the document as JSON data."""
    declared = [operation for routes in ROUTES for operation in routes.declared]
    return json.loads(json.dumps(describe(declared, base_url="http://localhost", version="0")))
