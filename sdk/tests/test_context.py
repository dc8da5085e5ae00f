"""The context of a callback is forwarded unchanged on its requests, and visible in no other."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timezone
from uuid import UUID, uuid4

import pytest

from quartermaster import AsyncClient, Client, context
from quartermaster.context import RequestContext
from sdk.tests.scripted_service import Answer, ScriptedService

HEADER = "service-usage-attribution"


def make_context(attribution: str) -> RequestContext:
    return RequestContext(
        agent_principal=uuid4(),
        execution_principal=uuid4(),
        payer=uuid4(),
        organization=uuid4(),
        deployment_id=uuid4(),
        transaction_id="transaction",
        attribution=attribution,
        expires_at=datetime(2026, 11, 22, tzinfo=timezone.utc),
    )


def sent(service: ScriptedService) -> dict[str, str | None]:
    """Return the attribution of the request for each file."""
    return {request.path.rpartition("/")[2]: request.headers.get(HEADER) for request in service.asked()}


def test_the_attribution_is_forwarded_within_its_context_and_omitted_outside(
    service: ScriptedService,
) -> None:
    within, nested, outside = uuid4(), uuid4(), uuid4()
    with Client(**service.secret) as client:
        with context.use(make_context("a.b.c")):
            client.files.get(within)
            with context.use(None):
                client.files.get(nested)
        client.files.get(outside)
    assert sent(service) == {str(within): "a.b.c", str(nested): None, str(outside): None}


def test_the_exchange_of_the_secret_carries_no_attribution(service: ScriptedService) -> None:
    with Client(**service.secret) as client, context.use(make_context("a.b.c")):
        client.files.get(uuid4())
    assert HEADER not in service.requests[0].headers


def test_contexts_of_concurrent_tasks_do_not_mix(service: ScriptedService) -> None:
    ids = [uuid4() for _ in range(60)]

    async def work(client: AsyncClient, file_id: UUID, number: int) -> None:
        with context.use(make_context(f"of.{file_id}") if number % 3 else None):
            await asyncio.sleep(0)
            await client.files.get(file_id)

    async def run() -> None:
        async with AsyncClient(**service.secret) as client:
            await asyncio.gather(*(work(client, file_id, number) for number, file_id in enumerate(ids)))

    asyncio.run(run())
    assert sent(service) == {str(at): f"of.{at}" if number % 3 else None for number, at in enumerate(ids)}


def test_contexts_of_concurrent_threads_do_not_mix(service: ScriptedService) -> None:
    ids = [uuid4() for _ in range(60)]

    def work(file_id: UUID, number: int) -> None:
        with context.use(make_context(f"of.{file_id}") if number % 3 else None):
            client.files.get(file_id)

    with Client(**service.secret) as client, ThreadPoolExecutor(16) as pool:
        list(pool.map(work, ids, range(len(ids))))
    assert sent(service) == {str(at): f"of.{at}" if number % 3 else None for number, at in enumerate(ids)}


@pytest.mark.parametrize("empty", ["", " "])
def test_an_empty_attribution_is_refused(empty: str) -> None:
    with pytest.raises(ValueError, match="attribution is empty"):
        make_context(empty)


def test_a_context_shows_no_attribution() -> None:
    assert "a.b.c" not in repr(make_context("a.b.c"))


def test_openais_client_asks_as_the_client_does(service: ScriptedService) -> None:
    pytest.importorskip("openai")
    service.script = lambda _: Answer(
        body={"object": "list", "data": []}, headers={"Content-Type": "application/json"}
    )
    foreign = {"Service-Principal-Selector": "x", "Service-Usage-Attribution": ""}
    with Client(**service.secret) as client:
        client.openai().models.list(extra_headers=foreign)
        with context.use(make_context("a.b.c")):
            client.openai().models.list(extra_headers=foreign)
    assert [at.headers["authorization"] for at in service.asked()] == ["Bearer token-1"] * 2
    assert [at.headers.get(HEADER) for at in service.asked()] == [None, "a.b.c"]
    assert [at.headers.get("service-principal-selector") for at in service.asked()] == [None, None]


def test_openais_asynchronous_client_asks_as_the_client_does(service: ScriptedService) -> None:
    pytest.importorskip("openai")
    service.script = lambda _: Answer(
        body={"object": "list", "data": []}, headers={"Content-Type": "application/json"}
    )

    async def run() -> None:
        async with AsyncClient(**service.secret) as client:
            with context.use(make_context("a.b.c")):
                assert [model async for model in client.openai().models.list()] == []

    asyncio.run(run())
    assert [at.headers.get(HEADER) for at in service.asked()] == ["a.b.c"]
    assert [at.headers["authorization"] for at in service.asked()] == ["Bearer token-1"]
