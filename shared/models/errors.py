"""Errors of a model request that are raised before any provider is called (docs/specification/models.md#errors)."""

from shared.errors import DomainError, Kind


class ModelNotFound(DomainError):
    """The catalog has no such model. Use the exact id of one that `GET /v1/models` lists."""

    code = "model_not_found"
    kind = Kind.NOT_FOUND


class ModelNotSupported(DomainError):
    """This model cannot be called through this endpoint. `GET /v1/models` lists the endpoints of each model."""

    code = "model_not_supported"
    kind = Kind.MALFORMED


class ModelAuthorizationDenied(DomainError):
    """The user, or the deployment's daemon identity, lacks model.execute in the organization."""

    code = "model_authorization_denied"
    kind = Kind.DENIED


class _RequestRefused(DomainError):
    kind = Kind.MALFORMED

    def __init__(self, detail: str | None = None, *, param: str | None = None) -> None:
        """Set `data["param"]` to the invalid field (`messages[0].content`), as OpenAI's errors do."""
        super().__init__(detail, param=param)
        self.param = param


class InvalidRequest(_RequestRefused):
    """This endpoint does not accept the request."""

    code = "invalid_request"


class ResponseStateNotSupported(_RequestRefused):
    """Responses are not stored here. Send the full context, `store: false` and no reference to an earlier response."""

    code = "response_state_not_supported"


class ContextLengthExceeded(_RequestRefused):
    """The prompt and the requested completion exceed the model's context length."""

    code = "context_length_exceeded"
