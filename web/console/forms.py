"""Read the form that a page of the console posts.

The size is limited, each field occurs once, and line ends are the only control characters.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from uuid import UUID

from shared.credits.amounts import parse_credits
from shared.errors import FieldError, ValidationFailed
from web.framework.calls import RequestContext
from web.http.requests import DuplicateParameter, MalformedRequest, UnsupportedMediaType
from web.http.url_encoded import FORM, RepeatedField, TooManyFields, read_fields

# The whole body is buffered in memory. The largest field is a message for a model or an agent.
MAXIMUM_BYTES = 256 << 10
# The longest form chooses the models of a key, with a field for each model of the catalog.
MAXIMUM_FIELDS = 100
Form = Mapping[str, str]


def read_form(call: RequestContext) -> Form:
    """Return the fields of the body. Empty fields are left out.

    Raises UnsupportedMediaType, ContentTooLarge, MalformedRequest, DuplicateParameter.
    """
    # Refuse multipart: no page uploads a file, so no form needs it.
    if call.http.mimetype != FORM:
        raise UnsupportedMediaType(f"Send the form as {FORM}.")
    raw = call.read_small_body(MAXIMUM_BYTES)
    try:
        fields = read_fields(raw, maximum=MAXIMUM_FIELDS)
    except TooManyFields:
        raise MalformedRequest(f"The form has more than {MAXIMUM_FIELDS} fields.") from None
    except RepeatedField:
        raise DuplicateParameter from None
    except UnicodeDecodeError:
        raise MalformedRequest("The form is not UTF-8.") from None
    return {_clean(name): _clean(value) for name, value in fields.items()}


def require(form: Form, name: str) -> str:
    """Return a field without surrounding space. Raises ValidationFailed if the field is empty."""
    value = form.get(name, "").strip()
    if not value:
        raise invalid_field(name, "is required")
    return value


def choose(form: Form, name: str, choices: Sequence[str]) -> str:
    """Return the choice in a field. The default is the first choice.

    Raises ValidationFailed if the value is not one of the choices.
    """
    chosen = form.get(name, choices[0])
    if chosen not in choices:
        raise invalid_field(name, f"must be one of {', '.join(choices)}")
    return chosen


def read_id(form: Form, name: str) -> UUID:
    """Return the id in a field. Raises ValidationFailed if the field contains no id."""
    try:
        return UUID(require(form, name))
    except ValueError:
        raise invalid_field(name, "must be an id, such as 01890000-0000-7000-8000-000000000000") from None


def read_amount(form: Form, name: str) -> int:
    """Return the credits in a field, in µcr. Raises ValidationFailed if the field contains no amount."""
    try:
        return parse_credits(require(form, name))
    except ValueError as error:
        raise invalid_field(name, str(error)) from None


def read_optional_amount(form: Form, name: str) -> int | None:
    """Return the credits in a field, in µcr, or None if the field is empty.

    Raises ValidationFailed if the field contains no amount.
    """
    return read_amount(form, name) if form.get(name, "").strip() else None


def read_day(text: str, name: str) -> datetime:
    """Return the beginning, in UTC, of the day in a field. `name` is the field's name.

    Raises ValidationFailed if `text` is not a day.
    """
    try:
        return datetime.strptime(text, "%Y-%m-%d").replace(tzinfo=UTC)
    except ValueError:
        raise invalid_field(name, "must be a day, such as 2026-01-31") from None


def invalid_field(name: str, message: str) -> ValidationFailed:
    """Return the error of one field. `message` continues a sentence that starts with its name: `must be an id`."""
    return ValidationFailed(errors=[FieldError(location="body", name=name, message=message)])


def _clean(text: str) -> str:
    # Refuse control characters: Postgres cannot store NUL, and no field of the console needs the others.
    if any(ord(character) < ord(" ") and character not in "\r\n\t" for character in text):
        raise MalformedRequest("The form contains control characters.")
    # Browsers send line ends of a text area as CR LF, so convert them to LF.
    return text.replace("\r\n", "\n")
