"""JSON schemas of a Response and of a stream's event, as the Open Responses suite requires them."""

from typing import Any

from jsonschema import Draft202012Validator

Json = dict[str, Any]

STRING: Json = {"type": "string"}
INTEGER: Json = {"type": "integer"}
NUMBER: Json = {"type": "number"}
BOOLEAN: Json = {"type": "boolean"}
TEXT_OR_NULL: Json = {"type": ["string", "null"]}
INTEGER_OR_NULL: Json = {"type": ["integer", "null"]}
STATUS: Json = {"enum": ["in_progress", "completed", "incomplete"]}


def shape(required: Json, **optional: Json) -> Json:
    """An object with these members; others are allowed."""
    return {"type": "object", "properties": {**required, **optional}, "required": list(required)}


def tagged(type_: str, required: Json, **optional: Json) -> Json:
    """An object that names its type."""
    return shape({"type": {"const": type_}, **required}, **optional)


def listed(item: Json) -> Json:
    return {"type": "array", "items": item}


TOP_LOGPROB = shape({"token": STRING, "logprob": NUMBER, "bytes": listed(INTEGER)})
LOGPROB = shape(
    {"token": STRING, "logprob": NUMBER, "bytes": listed(INTEGER), "top_logprobs": listed(TOP_LOGPROB)}
)
CITATION = tagged(
    "url_citation", {"url": STRING, "start_index": INTEGER, "end_index": INTEGER, "title": STRING}
)
PART: Json = {
    "oneOf": [
        tagged("output_text", {"text": STRING, "annotations": listed(CITATION)}, logprobs=listed(LOGPROB)),
        tagged("refusal", {"refusal": STRING}),
        tagged("reasoning_text", {"text": STRING}),
        tagged("summary_text", {"text": STRING}),
    ]
}
ITEM: Json = {
    "oneOf": [
        tagged(
            "message",
            {"id": STRING, "status": STATUS, "role": {"const": "assistant"}, "content": listed(PART)},
        ),
        tagged(
            "function_call",
            {"id": STRING, "call_id": STRING, "name": STRING, "arguments": STRING, "status": STATUS},
        ),
        tagged(
            "reasoning",
            {"id": STRING, "summary": listed(PART)},
            content=listed(PART),
            encrypted_content=STRING,
        ),
    ]
}
TOOL = tagged(
    "function",
    {"name": STRING, "description": TEXT_OR_NULL, "parameters": {"type": ["object", "null"]}},
    strict={"type": ["boolean", "null"]},
)
USAGE = shape(
    {
        "input_tokens": INTEGER,
        "output_tokens": INTEGER,
        "total_tokens": INTEGER,
        "input_tokens_details": shape({"cached_tokens": INTEGER}),
        "output_tokens_details": shape({"reasoning_tokens": INTEGER}),
    }
)
ERROR = shape({"code": STRING, "message": STRING})


def nullable(schema: Json) -> Json:
    return {"anyOf": [schema, {"type": "null"}]}


RESPONSE = shape(
    {
        "id": STRING,
        "object": {"const": "response"},
        "created_at": INTEGER,
        "completed_at": INTEGER_OR_NULL,
        "status": STRING,
        "incomplete_details": nullable(shape({"reason": STRING})),
        "model": STRING,
        "previous_response_id": TEXT_OR_NULL,
        "instructions": TEXT_OR_NULL,
        "output": listed(ITEM),
        "error": nullable(ERROR),
        "tools": listed(TOOL),
        "tool_choice": {"type": ["string", "object"]},
        "truncation": {"enum": ["auto", "disabled"]},
        "parallel_tool_calls": BOOLEAN,
        "text": shape({"format": shape({"type": STRING})}),
        "top_p": NUMBER,
        "presence_penalty": NUMBER,
        "frequency_penalty": NUMBER,
        "top_logprobs": INTEGER,
        "temperature": NUMBER,
        "reasoning": nullable(shape({"effort": TEXT_OR_NULL, "summary": TEXT_OR_NULL})),
        "usage": nullable(USAGE),
        "max_output_tokens": INTEGER_OR_NULL,
        "max_tool_calls": INTEGER_OR_NULL,
        "store": BOOLEAN,
        "background": BOOLEAN,
        "service_tier": STRING,
        "metadata": {"type": "object"},
        "safety_identifier": TEXT_OR_NULL,
        "prompt_cache_key": TEXT_OR_NULL,
    }
)
_NUMBERED: Json = {"sequence_number": INTEGER}
_OF_OUTPUT: Json = {**_NUMBERED, "output_index": INTEGER}
_OF_ITEM: Json = {**_OF_OUTPUT, "item_id": STRING}
_OF_PART: Json = {**_OF_ITEM, "content_index": INTEGER}
_OF_SUMMARY: Json = {**_OF_ITEM, "summary_index": INTEGER}
_EVENTS: dict[str, Json] = {
    **{
        f"response.{verb}": {**_NUMBERED, "response": RESPONSE}
        for verb in ("created", "queued", "in_progress", "completed", "failed", "incomplete")
    },
    **{f"response.output_item.{verb}": {**_OF_OUTPUT, "item": ITEM} for verb in ("added", "done")},
    **{f"response.content_part.{verb}": {**_OF_PART, "part": PART} for verb in ("added", "done")},
    "response.output_text.delta": {**_OF_PART, "delta": STRING},
    "response.output_text.done": {**_OF_PART, "text": STRING},
    "response.refusal.delta": {**_OF_PART, "delta": STRING},
    "response.refusal.done": {**_OF_PART, "refusal": STRING},
    "response.reasoning_text.delta": {**_OF_PART, "delta": STRING},
    "response.reasoning_text.done": {**_OF_PART, "text": STRING},
    **{
        f"response.reasoning_summary_part.{verb}": {**_OF_SUMMARY, "part": PART} for verb in ("added", "done")
    },
    "response.reasoning_summary_text.delta": {**_OF_SUMMARY, "delta": STRING},
    "response.reasoning_summary_text.done": {**_OF_SUMMARY, "text": STRING},
    "response.function_call_arguments.delta": {**_OF_ITEM, "delta": STRING},
    "response.function_call_arguments.done": {**_OF_ITEM, "arguments": STRING},
    "error": {**_NUMBERED, "error": shape({"type": STRING, "code": TEXT_OR_NULL, "message": STRING})},
}
_RESPONSE = Draft202012Validator(RESPONSE)
_BY_TYPE = {type_: Draft202012Validator(tagged(type_, members)) for type_, members in _EVENTS.items()}


def faults_of_response(response: Json) -> list[str]:
    """Everything that the suite would find wrong with a Response."""
    return [f"{error.json_path}: {error.message}" for error in _RESPONSE.iter_errors(response)]


def faults_of_event(event: Json) -> list[str]:
    """Everything that the suite would find wrong with an event."""
    known = _BY_TYPE.get(event["type"])
    if known is None:
        return [f"{event['type']} is no event of Open Responses"]
    return [f"{event['type']}{error.json_path}: {error.message}" for error in known.iter_errors(event)]
