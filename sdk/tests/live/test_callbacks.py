"""Callbacks for a receiving identity, over a running service: the owners of small and large files."""

from __future__ import annotations

import os
from typing import Any

import httpx
import pytest

from quartermaster import context
from quartermaster.context import RequestContext
from sdk.tests.live.conftest import Installation
from sdk.tests.test_context import make_context


@pytest.fixture
def routed(installation: Installation) -> RequestContext:
    """Return the context of a request that the distribution routed."""
    token = installation.credentials["distribution"]["token"]
    minted = httpx.post(
        f"{installation.front.url}/oauth/attributions", headers={"Authorization": f"Bearer {token}"}, json={}
    )
    return make_context(minted.json()["attribution"])


@pytest.mark.parametrize("content", [b"small", os.urandom(17 << 20)], ids=["small", "large"])
def test_what_is_stored_in_a_context_belongs_to_its_receiving_identity(
    installation: Installation, client: Any, routed: RequestContext, content: bytes
) -> None:
    with context.use(routed):
        stored = client.files.upload(content, file_name="a")
        owner = client.files.get(stored.id).owner
        listed = {at.id for at in client.files.list()}
    principal = installation.credentials["distribution"]["principalIdentityId"]
    assert (owner.kind, str(owner.id)) == ("PrincipalIdentity", principal)
    assert stored.id in listed


def test_autonomous_work_belongs_to_the_deployments_daemon(
    installation: Installation, client: Any, routed: RequestContext
) -> None:
    with context.use(routed), context.use(None):
        owner = client.files.get(client.files.upload(b"x", file_name="a").id).owner
    daemon = installation.credentials["deployment"]["daemonIdentityId"]
    assert (owner.kind, str(owner.id)) == ("DaemonIdentity", daemon)
