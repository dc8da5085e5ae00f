"""Every connection to the outside has the kernel ask whether the other end is still there."""

import socket

from shared.egress.connections import Guard
from shared.egress.deadlines import Deadline
from shared.egress.policy import EgressPolicy
from shared.models.providers.connections import ProviderAdapter
from shared.runtime.tcp_keepalive import KEEPALIVE_OPTIONS


def test_a_connection_that_others_chose_notices_a_link_that_was_cut() -> None:
    policy = EgressPolicy(allow_private=True, allow_http=True)
    with socket.create_server(("127.0.0.1", 0)) as listener, Deadline(10) as deadline:
        connection = Guard(policy, deadline, 5.0).connect("127.0.0.1", listener.getsockname()[1])
        with connection:
            found = {option: connection.getsockopt(*option[:2]) for option in KEEPALIVE_OPTIONS}
    assert found == {option: option[2] for option in KEEPALIVE_OPTIONS}


def test_a_connection_to_a_provider_notices_it_too() -> None:
    given = ProviderAdapter().poolmanager.connection_pool_kw["socket_options"]
    assert set(KEEPALIVE_OPTIONS) <= set(given)


def test_a_cut_link_is_given_up_within_half_a_minute() -> None:
    values = {name: value for _, name, value in KEEPALIVE_OPTIONS}
    probes = values[socket.TCP_KEEPINTVL] * values[socket.TCP_KEEPCNT]
    assert values[socket.TCP_KEEPIDLE] + probes <= 30
