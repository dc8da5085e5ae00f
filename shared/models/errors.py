"""What the model service refuses about a request, before a provider is asked (docs/specification/models.md#errors)."""

from shared.errors import DomainError, Kind


class ModelNotFound(DomainError):
    """There is no such model in the catalog; pass the exact id of one that `GET /v1/models` lists."""

    code = "model_not_found"
    kind = Kind.NOT_FOUND


class ModelNotSupported(DomainError):
    """This model cannot be called through this endpoint."""

    code = "model_not_supported"
    kind = Kind.MALFORMED


class ModelAuthorizationDenied(DomainError):
    """The user, or the deployment's daemon identity, lacks model.execute in the organization."""

    code = "model_authorization_denied"
    kind = Kind.DENIED


class _RequestRefused(DomainError):
    kind = Kind.MALFORMED

    def __init__(self, detail: str | None = None, *, param: str | None = None) -> None:
        """Name the wrong field (`messages[0].content`) as OpenAI's errors do; it is `data["param"]`."""
        super().__init__(detail, param=param)
        self.param = param


class InvalidRequest(_RequestRefused):
    """The request is not one that this endpoint takes."""

    code = "invalid_request"


class ResponseStateNotSupported(_RequestRefused):
    """Responses are not stored here: send the full context, `store: false` and no reference to an earlier response."""

    code = "response_state_not_supported"


class ContextLengthExceeded(_RequestRefused):
    """The prompt and the room asked for the completion exceed the model's context length."""

    code = "context_length_exceeded"
