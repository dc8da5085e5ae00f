"""A connector to a messaging network: it pushes an attachment of a message, and waits until it is stored."""

import mimetypes
import os
import sys
import time
from pathlib import Path
from typing import Any

import httpx


def push(client: httpx.Client, message_id: str, attachment: Path) -> dict[str, Any]:
    """Push the bytes; the network's own ids make it safe to push again."""
    media_type = mimetypes.guess_type(attachment.name)[0] or "application/octet-stream"
    with attachment.open("rb") as file:
        answer = client.post(
            "media",
            data={"messageId": message_id, "attachmentId": attachment.name},
            files={"file": (attachment.name, file, media_type)},
        )
    pushed: dict[str, Any] = answer.raise_for_status().json()
    return pushed


def wait_for(client: httpx.Client, import_id: str) -> dict[str, Any]:
    """Wait until an import has ended, well or not."""
    while True:
        imported: dict[str, Any] = client.get(f"media/{import_id}").raise_for_status().json()
        if imported["state"] in ("Stored", "Failed", "Held"):
            return imported
        time.sleep(0.2)


if __name__ == "__main__":
    base = f"{os.environ['SERVICE_BASE_URL']}/distributions/{os.environ['DISTRIBUTION_ID']}/"
    token = {"Authorization": f"Bearer {os.environ['DISTRIBUTION_TOKEN']}"}
    with httpx.Client(base_url=base, headers=token, timeout=60) as service:
        done = wait_for(service, push(service, sys.argv[1], Path(sys.argv[2]))["importId"])
    print(done["state"], done["fileId"])
