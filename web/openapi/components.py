"""Components of the OpenAPI document that no operation declares: error schemas, security schemes, statuses."""

from typing import Any

from shared.media.networks.registry import NETWORKS

REF = "#/components/schemas/{model}"
STATUS_MEANINGS = {
    200: "Done.",
    201: "Created.",
    202: "Accepted; the work goes on after the response.",
    204: "Done; without content.",
    206: "The requested ranges.",
    304: "Not modified.",
    503: "Not ready.",
}
PROBLEM_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "An error (RFC 9457).",
    "properties": {
        "type": {"type": "string", "format": "uri"},
        "title": {"type": "string"},
        "status": {"type": "integer"},
        "detail": {"type": "string"},
        "code": {"type": "string"},
        "requestId": {"type": "string"},
        "moreErrors": {"type": "integer", "description": "Number of errors that are not listed."},
        "errors": {
            "type": "array",
            "maxItems": 20,
            "items": {
                "type": "object",
                "properties": {name: {"type": "string"} for name in ("location", "name", "message")},
                "required": ["location", "name", "message"],
            },
        },
    },
    "required": ["type", "title", "status", "detail", "code", "requestId"],
}
OPENAI_ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "An error in OpenAI's format.",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": ["string", "null"]},
                "code": {"type": "string"},
            },
            "required": ["message", "type", "param", "code"],
        }
    },
    "required": ["error"],
}
ANTHROPIC_ERROR_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "An error in Anthropic's format.",
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "properties": {name: {"type": "string"} for name in ("type", "message", "code")},
            "required": ["type", "message", "code"],
        },
        "request_id": {"type": "string"},
    },
    "required": ["type", "error", "request_id"],
}
OAUTH_SCHEMA: dict[str, Any] = {
    "type": "object",
    "description": "An error (RFC 6749 5.2).",
    "properties": {"error": {"type": "string"}, "error_description": {"type": "string"}},
    "required": ["error"],
}
# One scheme for each network: a scheme of OpenAPI names one header, and each network signs in another header.
SIGNATURE_SCHEMES: dict[str, Any] = {
    f"{name}Signature": {
        "type": "apiKey",
        "in": "header",
        "name": network.signature.header,
        "description": f"{network.title}: {network.signature.describe()}.",
    }
    for name, network in NETWORKS.items()
}
SECURITY_SCHEMES: dict[str, Any] = {
    "bearer": {
        "type": "http",
        "scheme": "bearer",
        "description": "A Version access token of a deployment, or a user's API key.",
    },
    "apiKey": {
        "type": "apiKey",
        "in": "header",
        "name": "x-api-key",
        "description": "The same credentials as bearer, as Anthropic's clients send them.",
    },
    "grant": {
        "type": "apiKey",
        "in": "query",
        "name": "grant",
        "description": "A read grant, from a shared link.",
    },
    "client": {"type": "http", "scheme": "basic", "description": "A deployment's client id and secret."},
    "distribution": {"type": "http", "scheme": "bearer", "description": "A distribution's token."},
    "stripeSignature": {
        "type": "apiKey",
        "in": "header",
        "name": "Stripe-Signature",
        "description": "Stripe's signature of the body, with a secret of the payment source.",
    },
    "standardWebhooks": {
        "type": "apiKey",
        "in": "header",
        "name": "webhook-signature",
        "description": "A Standard Webhooks signature with the distribution's or payment source's secret, with"
        " `webhook-id` and `webhook-timestamp`, over the whole body of at most 1 MiB.",
    },
}


def ref(name: str) -> dict[str, Any]:
    """Return a reference to a schema of the document."""
    return {"$ref": REF.format(model=name)}
