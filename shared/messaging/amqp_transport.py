"""Corrections to kombu's AMQP transport, by which a broker that takes nothing holds up nobody.

RabbitMQ in an alarm (memory, disk) reads no more from a connection that publishes. py-amqp then waits for a
confirmation, and after that for the answer to its goodbye, without end. Here a connection that the broker blocks, or
that brings no confirmation in time, is dropped without a goodbye. A test fails when the parts relied upon change.
"""

import ssl
from typing import Any

from amqp.exceptions import RecoverableConnectionError
from kombu.transport import TRANSPORT_ALIASES, pyamqp

CONFIRM_SECONDS = 2.0


def register_transport() -> None:
    """Make `amqp://` and `amqps://` broker addresses use the corrected transport."""
    TRANSPORT_ALIASES.update(
        amqp="shared.messaging.amqp_transport:Transport",
        amqps="shared.messaging.amqp_transport:SecureTransport",
    )


class Channel(pyamqp.Channel):
    """kombu's channel, which waits for a confirmation only so long."""

    def basic_publish_confirm(self, *args: Any, **kwargs: Any) -> Any:
        """Publish, and wait until the broker has the message. Raises RecoverableConnectionError when it takes long."""
        connection = self.connection
        kwargs["confirm_timeout"] = kwargs.get("confirm_timeout") or CONFIRM_SECONDS
        try:
            return super().basic_publish_confirm(*args, **kwargs)
        except TimeoutError:
            connection.collect()
            raise RecoverableConnectionError("the broker did not confirm a message in time") from None


class Connection(pyamqp.Connection):
    """kombu's connection, which ends when the broker blocks it."""

    Channel = Channel

    def _on_blocked(self) -> None:
        self.collect()
        raise RecoverableConnectionError("the broker takes no messages: it lacks memory or disk")


class Transport(pyamqp.Transport):
    """kombu's AMQP transport with our connection."""

    Connection = Connection


class SecureTransport(pyamqp.SSLTransport):
    """The same over TLS, by which kombu verifies no name and lets no address say whose certificates are good."""

    Connection = Connection

    def establish_connection(self) -> Any:
        """Connect to a server whose certificate is good for the address's host."""
        client: Any = self.client
        client.ssl = tls_options(client.ssl, client.hostname)
        return super().establish_connection()


def tls_options(asked: Any, host: str) -> dict[str, Any]:
    """Give py-amqp's options of TLS for what an address asks: `ssl_ca_certs`, `ssl_certfile`, `ssl_keyfile`."""
    given = (
        {name.removeprefix("ssl_"): value for name, value in asked.items()} if isinstance(asked, dict) else {}
    )
    given.pop("check_hostname", None)  # not py-amqp's: the name is checked where it is given
    return {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": host} | given
