"""Four hundred first calls at once, as an asynchronous client sends them, and anonymous half bodies."""

import contextlib
import http.client
import json
import socket
import time

import requests

from tests.journeys.models.asking import ask, body_of
from tests.journeys.models.conftest import running_worker
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import Service, free_port
from tests.web.server.trivial_front import many_files

CALLS = 400
STRANGERS = 64
PAUSE_SECONDS = 0.3


def test_calls_with_head_and_body_in_two_packets_all_succeed(service: ModelService) -> None:
    # Use the full timeouts: a slow machine needs them to respond to all calls.
    patient = {"PATIENCE": "whole", "SLOT_WAIT_SECONDS": "60"}
    front = service.stack.web(port=free_port(), WEB_THREADS="384", **patient)
    with (
        service.stack.running(front),
        running_worker(service),
        many_files(CALLS + 500),
        contextlib.ExitStack() as stack,
    ):
        content = json.dumps(body_of("hello", model="scripted/echo", stream=False)).encode()
        calls = [stack.enter_context(_begin(service, front, len(content))) for _ in range(CALLS)]
        time.sleep(PAUSE_SECONDS)  # Longer than reading all heads takes, as on a slow network.
        for call in calls:
            call.sendall(content)
        statuses = [_status(call) for call in calls]
        assert [status for status in statuses if status != 200] == []


def test_anonymous_half_bodies_block_no_other_client(service: ModelService) -> None:
    front = service.stack.web(port=free_port())
    head = b"POST /oauth/token HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n"
    half = head + b"Content-Type: application/x-www-form-urlencoded\r\n\r\n" + b"grant_type=client"
    with service.stack.running(front), running_worker(service), contextlib.ExitStack() as stack:
        for _ in range(STRANGERS):
            stranger = stack.enter_context(socket.create_connection(("127.0.0.1", front.port or 0)))
            stranger.sendall(half)
        for _ in range(5):
            form = {"grant_type": "client_credentials"}
            assert requests.post(f"{front.url}/oauth/token", data=form, timeout=60).status_code == 401
            assert ask(service, "hello", front=front, model="scripted/echo").status_code == 200


def _begin(service: ModelService, front: Service, length: int) -> socket.socket:
    head = (
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {service.api_key}\r\nContent-Length: {length}\r\n\r\n"
    )
    connection = socket.create_connection(("127.0.0.1", front.port or 0), timeout=60)
    connection.sendall(head.encode())
    return connection


def _status(connection: socket.socket) -> int:
    with contextlib.closing(http.client.HTTPResponse(connection)) as answer:
        answer.begin()
        return answer.status
