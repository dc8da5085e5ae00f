"""The OpenAPI document, made once for a whole run: what it says depends on the code alone."""

import json
from functools import cache
from typing import Any

from web.app import ROUTES
from web.openapi.document import describe


@cache
def openapi_document() -> Any:
    """Describe every operation, as JSON says it."""
    declared = [operation for routes in ROUTES for operation in routes.declared]
    return json.loads(json.dumps(describe(declared, base_url="http://localhost", version="0")))
