"""Valkey and Postgres die or lose their data during calls: errors where data was lost, and all accounts agree."""

from collections.abc import Iterator

import pytest
import redis

from tests.journeys.models.asking import (
    ask,
    assert_ended_with_an_error,
    has_finished_well,
    listening,
    scripted,
)
from tests.support.models.model_service import ModelService
from tests.support.processes.stack import Servers, wait_until

pytestmark = pytest.mark.usefixtures("worker")
SHORT = scripted(chunks=5)


@pytest.fixture(autouse=True)
def _restored(servers: Servers) -> Iterator[None]:
    """Restart the servers for the next test."""
    yield
    for valkey in servers.valkeys:
        if not valkey.is_ready():
            valkey.kill()
            valkey.start()


def wait_until_answering(service: ModelService) -> None:
    wait_until(lambda: ask(service, SHORT).status_code == 200, "calls are answered again")
    service.wait_until_settled()


def test_lost_valkey_ends_streams_with_an_error_and_settles_once(
    service: ModelService, servers: Servers
) -> None:
    with listening(service, scripted(chunks=2000, delay_seconds=0.02)) as stream:
        stream.read_until("abc")
        servers.valkey_models.kill()
        servers.valkey_models.start()
        assert_ended_with_an_error(stream.read_to_end())
    service.wait_until_settled()
    wait_until_answering(service)


def test_running_calls_continue_while_the_broker_is_down(service: ModelService, servers: Servers) -> None:
    with listening(service, scripted(chunks=50, delay_seconds=0.02)) as stream:
        stream.read_until("abc")
        servers.valkey.kill()
        assert ask(service, SHORT).status_code == 200
        assert has_finished_well(stream.read_to_end())
    service.wait_until_settled()


def test_stream_continues_when_valkey_has_lost_all_data(service: ModelService, valkey: redis.Redis) -> None:
    with listening(service, scripted(chunks=50, delay_seconds=0.02)) as stream:
        stream.read_until("abc")
        valkey.flushall()
        assert has_finished_well(stream.read_to_end())
    service.wait_until_settled()
    wait_until_answering(service)


def test_calls_are_refused_while_valkey_is_down_and_nothing_is_held(
    service: ModelService, servers: Servers
) -> None:
    servers.valkey_models.kill()
    refused = ask(service, SHORT)
    assert (refused.status_code, refused.json()["error"]["code"]) == (503, "overloaded")
    assert int(refused.headers["Retry-After"]) >= 1
    assert service.open_invocations() == []
    servers.valkey_models.start()
    wait_until_answering(service)


def test_call_that_ends_during_postgres_restart_is_settled_once_as_reported(
    service: ModelService, servers: Servers
) -> None:
    before = len(service.upstream.served)
    with listening(service, scripted(chunks=50, delay_seconds=0.02)) as stream:
        stream.read_until("abc")
        servers.postgres.kill()
        wait_until(lambda: service.upstream.served[before].ended == "answered", "the upstream is done")
        servers.postgres.start()
        assert has_finished_well(stream.read_to_end())
    service.database.dispose()
    record = service.wait_for_record(str(service.upstream.served[before].call))
    assert (record["status"], record["is_estimated"]) == ("completed", False)
    assert record["completion_tokens"] == 50
    wait_until_answering(service)
