"""Read what a form of the console posts: bounded, each field once, control characters but line ends refused."""

from collections.abc import Mapping
from datetime import UTC, datetime
from uuid import UUID

from shared.credits.amounts import parse_credits
from shared.errors import FieldError, ValidationFailed
from web.framework.calls import RequestContext
from web.http.requests import DuplicateParameter, MalformedRequest, UnsupportedMediaType
from web.http.url_encoded import FORM, RepeatedField, TooManyFields, read_fields

MAXIMUM_BYTES = 256 << 10
MAXIMUM_FIELDS = 100
Form = Mapping[str, str]


def read_form(call: RequestContext) -> Form:
    """Read the body; what is empty counts as not sent."""
    if call.http.mimetype != FORM:
        raise UnsupportedMediaType(f"Send the form as {FORM}.")
    raw = call.read_small_body(MAXIMUM_BYTES)
    try:
        fields = read_fields(raw, maximum=MAXIMUM_FIELDS)
    except TooManyFields:
        raise MalformedRequest("The form has too many fields.") from None
    except RepeatedField:
        raise DuplicateParameter from None
    except UnicodeDecodeError:
        raise MalformedRequest("The form is not UTF-8.") from None
    return {_clean(name): _clean(value) for name, value in fields.items()}


def require(form: Form, name: str) -> str:
    """Give a field; raise ValidationFailed without it."""
    value = form.get(name, "").strip()
    if not value:
        raise wrong(name, "is required")
    return value


def read_id(form: Form, name: str) -> UUID:
    """Give a field that holds an id; raise ValidationFailed for anything else."""
    try:
        return UUID(require(form, name))
    except ValueError:
        raise wrong(name, "is not an id") from None


def read_amount(form: Form, name: str) -> int:
    """Read credits as µcr; raise ValidationFailed for anything else."""
    try:
        return parse_credits(require(form, name))
    except ValueError as error:
        raise wrong(name, str(error)) from None


def read_day(text: str, name: str) -> datetime:
    """Read the day of a field for one, UTC; raise ValidationFailed for anything else."""
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise wrong(name, "is not a day") from None


def wrong(name: str, message: str) -> ValidationFailed:
    """Make the refusal of a field."""
    return ValidationFailed(errors=[FieldError(location="body", name=name, message=message)])


def _clean(text: str) -> str:
    if any(ord(character) < ord(" ") and character not in "\r\n\t" for character in text):
        raise MalformedRequest("The form holds control characters.")
    return text.replace("\r\n", "\n")
