"""Strikes at links to Postgres, Valkey and RabbitMQ: they are reset, go silent, or lose the response to a request.

The processes of the service reach their servers through `relays`. Clients, the monkey and the comparison connect to
them directly.
"""

from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit, urlunsplit

from tests.chaos.strikes.base import Chance, Strikes
from tests.chaos.strikes.relays import Relays
from tests.support.processes.stack import Stack
from tests.support.servers.links import Address

SILENT_SECONDS = (1.0, 4.0)
RESETS_SHARE = 0.5
SHARES = (0.1, 0.5, 1.0)
"""Of a link's connections, those that are struck together."""
REQUESTS: Mapping[str, tuple[str, ...]] = {
    "postgres": ("COMMIT", "EXECUTE", "credits_", "credits_settle", "UPDATE", ""),
    "valkey": ("PUBLISH", "LPUSH", ""),
    "valkey-models": ("PUBLISH", "LPUSH", ""),
    "rabbitmq": ("",),
}
"""What a request has whose answer is lost; every request has the empty one.

What is prepared (`shared/db/statements.py`), uploads for one, and what a function does, holds and settlements, commits
by itself.
"""
_VARIABLES = {
    "postgres": "DATABASE_URL",
    "valkey": "REDIS_URL",
    "valkey-models": "MODELS_REDIS_URL",
    "rabbitmq": "BROKER_URL",
}


class _AtRelays(Strikes):
    """Strikes at links, which end by themselves."""

    def __init__(self, relays: Relays, chance: Chance) -> None:
        self._relays = relays
        self._chance = chance

    def tend(self) -> None:
        """Do nothing: silence ends by itself, and a lost response never arrives."""

    def mend(self) -> None:
        """Do nothing: processes that restart have new connections."""


class LinkStrikes(_AtRelays):
    """Resets one link at a time, or makes it silent."""

    pause_seconds = (0.3, 1.8)

    def strike(self) -> None:
        name = self._chance.random.choice(list(self._relays.ports))
        share = self._chance.random.choice(SHARES)
        if self._chance.random.random() < RESETS_SHARE:
            self._chance.done[f"link to {name} reset"] += 1
            self._relays.reset(name, share)
        else:
            self._chance.done[f"link to {name} silent"] += 1
            self._relays.be_silent(name, share, seconds=self._chance.random.uniform(*SILENT_SECONDS))


class AnswerStrikes(_AtRelays):
    """Loses the response to the next request of one kind, once, on some connections of a link."""

    pause_seconds = (0.2, 1.2)

    def strike(self) -> None:
        wanted = [(name, request) for name in self._relays.ports for request in REQUESTS[name]]
        name, request = self._chance.random.choice(wanted)
        self._chance.done[f"answers of {name} lost"] += 1
        self._relays.lose_answers(name, self._chance.random.choice(SHARES), request=request)


def lead_through(stack: Stack) -> Relays:
    """Have processes that start from now on reach their servers through links."""
    servers: dict[str, Address] = {}
    names = [name for name, variable in _VARIABLES.items() if variable in stack.environment]
    for name in names:
        servers[name] = server_of(stack.environment[_VARIABLES[name]])
    relays = Relays(servers)
    for name, port in relays.ports.items():
        stack.environment[_VARIABLES[name]] = led_through(stack.environment[_VARIABLES[name]], port)
    return relays


def server_of(url: str) -> Address:
    """Return the address of the server in this URL."""
    address = urlsplit(url)
    if address.hostname is not None and address.port is not None:
        return address.hostname, address.port
    return f"{parse_qs(address.query)['host'][0]}/.s.PGSQL.5432"


def led_through(url: str, port: int) -> str:
    """Return the URL that reaches the same server through a link."""
    address = urlsplit(url)
    credentials = address.netloc.rpartition("@")[0]
    query = "" if "host=" in address.query else address.query
    return urlunsplit(address._replace(netloc=f"{credentials}@127.0.0.1:{port}", query=query))
