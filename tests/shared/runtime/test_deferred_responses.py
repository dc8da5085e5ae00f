"""What an answer that waits does when it is closed, and that nothing of it is left then."""

import gc
import weakref
from collections.abc import Generator

import pytest
from flask import Flask, Response

from shared.runtime.deferred_responses import DeferredResponse, WakeUp
from web.framework.admission import call_when_sent


def make(pieces: Generator[bytes]) -> DeferredResponse:
    return DeferredResponse(pieces, WakeUp(), idle_seconds=lambda: 0.0, is_blocking=False)


def test_close_ends_the_pieces_and_runs_every_callback() -> None:
    called: list[str] = []

    def fail() -> None:
        called.append("fails")
        raise RuntimeError

    def pieces() -> Generator[bytes]:
        try:
            yield b"begun"
        finally:
            called.append("pieces")

    answer = make(pieces())
    assert next(answer) == b"begun"
    answer.call_on_close(lambda: called.append("first"))
    answer.call_on_close(fail)
    with pytest.raises(RuntimeError):
        answer.close()
    assert called == ["pieces", "fails", "first"]


def test_an_answer_that_is_over_goes_without_a_look_for_cycles() -> None:
    called: list[str] = []
    with Flask(__name__).test_request_context():
        answer = make(piece for piece in [b"done"])
        response = Response(answer, direct_passthrough=True)
        call_when_sent(response, lambda: called.append("sent"))
    gc.disable()
    try:
        answer.close()
        rest = weakref.ref(answer)
        del answer, response
        assert called == ["sent"]
        assert rest() is None
    finally:
        gc.enable()
