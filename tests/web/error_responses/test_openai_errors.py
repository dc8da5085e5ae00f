"""OpenAI's error format: the type, parameter and retry header of each code."""

import pytest

from web.error_responses.openai_errors import is_final_status, openai_body

EXPECTED = [
    ("model_not_found", 404, "invalid_request_error", "model"),
    ("model_not_supported", 400, "invalid_request_error", "model"),
    ("model_authorization_denied", 403, "permission_error", None),
    ("response_state_not_supported", 400, "invalid_request_error", None),
    ("insufficient_credits", 402, "insufficient_quota", None),
    ("billing_organization_required", 400, "invalid_request_error", None),
    ("credit_policy_suspended", 403, "billing_error", None),
]


@pytest.mark.parametrize(("code", "status", "kind", "param"), EXPECTED)
def test_each_code_of_the_specification_has_its_type(
    code: str, status: int, kind: str, param: str | None
) -> None:
    error = openai_body(status, code, "Sorry.")["error"]
    assert error == {"message": "Sorry.", "type": kind, "param": param, "code": code}
    assert is_final_status(status)


def test_error_param_is_the_named_field_with_data_beside_it() -> None:
    error = openai_body(402, "insufficient_credits", "No.", param="model", available="0")["error"]
    assert (error["param"], error["available"]) == ("model", "0")


@pytest.mark.parametrize("status", [408, 409, 429, 500, 502, 503, 504])
def test_retryable_statuses_have_no_retry_header(status: int) -> None:
    assert not is_final_status(status)
