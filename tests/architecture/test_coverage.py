"""Coverage can be measured without breaking a test."""

import sys

import pytest


def test_a_process_of_the_tests_refuses_audit_hooks() -> None:
    with pytest.raises(RuntimeError, match="audit hook"):
        sys.addaudithook(lambda *_: None)
