"""The protocol's objects are read leniently and written strictly, and numbers pass through to the digit."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from shared.a2a.exact_json import parse, render
from shared.a2a.types import Message, Part, SendMessageRequest, Task, TaskState, TaskStatus

NUMBERS = (
    '{"z":9007199254740993,"a":1.10,"big":1e400,"minus":-0,"exact":-0.0,"e":1.5E+3,"long":' + "9" * 5000 + "}"
)


class Written(str):
    """A number as it stands in a text."""

    __slots__ = ()


@given(
    st.recursive(
        st.none()
        | st.booleans()
        | st.text()
        | st.integers().map(str).map(Written)
        | st.from_regex(r"-?(0|[1-9][0-9]{0,30})(\.[0-9]{1,30})?([eE][+-]?[0-9]{1,4})?", fullmatch=True).map(
            Written
        ),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
        max_leaves=12,
    )
)
def test_any_json_is_written_as_it_was_read(value: Any) -> None:
    text = written(value)
    assert render(parse(text)) == text


def written(value: Any) -> str:
    if isinstance(value, Written):
        return value
    if isinstance(value, list):
        return f"[{','.join(map(written, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{written(name)}:{written(at)}' for name, at in value.items())}}}"
    return json.dumps(value, ensure_ascii=False)


def message(**members: object) -> dict[str, object]:
    return {"messageId": "m1", "role": "ROLE_USER", "parts": [{"text": "hi"}], **members}


def test_numbers_keys_and_their_order_come_back_as_they_were_written() -> None:
    read = Message.model_validate(message(metadata=parse(NUMBERS), parts=[{"data": parse(NUMBERS)}]))
    written = render(read.to_wire())
    assert f'"metadata":{NUMBERS}' in written
    assert f'"parts":[{{"data":{NUMBERS}}}]' in written


def test_what_is_computed_from_an_exact_number_is_a_number() -> None:
    assert parse("1.10") == 1.1
    assert parse("[3]") == [3]
    assert isinstance(parse("3"), int)


def test_nothing_is_written_that_was_not_said() -> None:
    task = Task(id="t", status=TaskStatus(state=TaskState.WORKING), history=())
    assert render(task.to_wire()) == '{"id":"t","status":{"state":"TASK_STATE_WORKING"}}'


def test_a_data_part_may_hold_null() -> None:
    part = Part.model_validate({"data": None})
    assert part.to_wire() == {"data": None}


@pytest.mark.parametrize(
    "part", [{}, {"text": "a", "url": "b"}, {"text": "a", "data": None}, {"text": None}, {"raw": "!!!"}]
)
def test_a_part_holds_exactly_one_content(part: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Part.model_validate(part)


@pytest.mark.parametrize(("sent", "kept"), [("aGk/", "aGk/"), ("aGk_", "aGk/"), ("aGk", "aGk="), ("", "")])
def test_base64_is_read_in_any_spelling_and_written_in_one(sent: str, kept: str) -> None:
    assert Part.model_validate({"raw": sent}).to_wire() == {"raw": kept}


def test_snake_case_nulls_and_unknown_members_are_read() -> None:
    request = SendMessageRequest.model_validate(
        {
            "message": {
                "message_id": "m1",
                "role": "ROLE_USER",
                "parts": [{"text": "hi", "kind": "text"}],
                "extensions": None,
            },
            "configuration": {"history_length": "3", "returnImmediately": None},
        }
    )
    assert request.message.message_id == "m1"
    assert request.configuration is not None
    assert request.configuration.history_length == 3
    assert request.to_wire()["message"] == message()


@pytest.mark.parametrize(
    "wrong",
    [
        message(role="user"),
        message(parts=[]),
        message(messageId=""),
        message(metadata=[]),
        {key: value for key, value in message().items() if key != "messageId"},
    ],
)
def test_what_a_message_must_have_is_required(wrong: dict[str, object]) -> None:
    with pytest.raises(ValidationError):
        Message.model_validate(wrong)


@pytest.mark.parametrize("text", ["NaN", "[1, -Infinity]", '{"a": Infinity}'])
def test_what_json_has_no_number_for_is_not_read(text: str) -> None:
    with pytest.raises(ValueError, match="is not JSON"):
        parse(text)
