"""The raw bytes of an upload, to be sent in parts."""

from uuid import uuid4

import requests

from tests.support.agents.rest_clients import Client


def raw_upload(agent: Client, content: bytes) -> tuple[bytes, bytes]:
    """Return an upload's head and body."""
    request = requests.Request(
        "POST",
        f"{agent.url}/files/agent-artifacts",
        params={"operationId": str(uuid4()), "byteSize": len(content)},
        files={"file": ("a.bin", content, "application/octet-stream")},
        headers={"Authorization": f"Bearer {agent.token}"},
    ).prepare()
    assert isinstance(request.body, bytes)
    lines = [f"POST {request.path_url} HTTP/1.1", "Host: localhost"]
    lines += [f"{name}: {value}" for name, value in request.headers.items()]
    return "\r\n".join([*lines, "", ""]).encode(), request.body
