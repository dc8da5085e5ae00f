"""The bucket of an installation on many hosts: its server, and its differences from the rows."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import boto3

from deploy.supervision.child_processes import Program, kill, spawn
from shared.files.blobs.marker import MARKER
from tests.hosts.network import Host
from tests.support.data.inventory import find_disagreeing_rows, query
from tests.support.processes.stack import Stack, wait_until

BUCKET = "quartermaster"
PORT = 9000
KEY = "test"


class Bucket:
    """An S3 server on a host. It keeps everything in memory: its host may be cut off, but never killed."""

    def __init__(self, host: Host, directory: Path) -> None:
        directory.mkdir(parents=True)
        self.address = f"http://{host.address}:{PORT}"
        own = {"GATEWAY_PORT": str(PORT), "BIND_HOST": host.address, "SERVICES": "s3", "SFTP_ENABLED": "0"}
        self._program = Program(
            name="s3",
            command=(sys.executable, "-m", "ministack"),
            environment=os.environ | own,
            directory=directory,
            log=directory / "s3.log",
            prefix=host.prefix,
        )
        self._process: subprocess.Popen[bytes] | None = None
        self._client: Any = boto3.client(
            "s3",
            endpoint_url=self.address,
            region_name="us-east-1",
            aws_access_key_id=KEY,
            aws_secret_access_key=KEY,
        )

    @property
    def settings(self) -> dict[str, str]:
        """Return the settings of processes that use it."""
        return {
            "S3_ENDPOINT_URL": self.address,
            "S3_REGION": "us-east-1",
            "S3_ACCESS_KEY_ID": KEY,
            "S3_SECRET_ACCESS_KEY": KEY,
        }

    def start(self) -> None:
        """Start the server, and create the bucket."""
        self._process = spawn(self._program)
        wait_until(self._make, f"the bucket; see {self._program.log}", seconds=60)

    def stop(self) -> None:
        """Stop the server; its content is lost."""
        if self._process is not None:
            kill(self._process)

    def find_faults(self, stack: Stack) -> list[str]:
        """Return every difference between a drained stack's rows and the bucket."""
        recorded = dict(query(stack, "SELECT version_id::text, state FROM blobs"))
        live = {name for name, state in recorded.items() if state == "live"}
        objects = self._objects()
        faults = [f"leaked bytes: {name}" for name in objects.keys() - live]
        faults += [f"a live row without bytes: {name}" for name in live - objects.keys()]
        faults += [f"an unfinished upload: {name}" for name in self._unfinished()]
        return faults + find_disagreeing_rows(stack) + self._find_damage(stack, objects)

    def _make(self) -> bool:
        try:
            self._client.create_bucket(Bucket=BUCKET)
        except Exception:  # noqa: BLE001 (the client raises various errors until the server listens)
            return False
        return True

    def _objects(self) -> dict[str, str]:
        """Return the key of every object by its version."""
        pages = self._client.get_paginator("list_objects_v2").paginate(Bucket=BUCKET)
        keys = [item["Key"] for page in pages for item in page.get("Contents", ())]
        return {key.rpartition("/")[2]: key for key in keys if key.rpartition("/")[2] != MARKER}

    def _unfinished(self) -> list[str]:
        found = self._client.list_multipart_uploads(Bucket=BUCKET).get("Uploads", ())
        return [item["Key"] for item in found]

    def _find_damage(self, stack: Stack, objects: dict[str, str]) -> list[str]:
        rows = query(stack, "SELECT id::text, content_sha256 FROM file_versions")
        digests = {name: bytes(digest) for name, digest in rows}
        return [
            f"damaged bytes: {name}"
            for name, key in objects.items()
            if name in digests and self._digest(key) != digests[name]
        ]

    def _digest(self, key: str) -> bytes:
        body = self._client.get_object(Bucket=BUCKET, Key=key)["Body"].read()
        return hashlib.sha256(body).digest()
