"""Corrections to kombu's AMQP transport, so that a broker that accepts no messages does not block publishers.

RabbitMQ in an alarm (memory, disk) stops reading from connections that publish. py-amqp then waits without limit
for the confirmation, and on close for the response to `connection.close`. With this transport, a connection is
dropped without a closing handshake if the broker blocks it or sends no confirmation in time. A test fails if the
parts of py-amqp that this module uses change.
"""

import ssl
from typing import Any

from amqp.exceptions import RecoverableConnectionError
from kombu.transport import TRANSPORT_ALIASES, pyamqp

CONFIRM_SECONDS = 2.0


def register_transport() -> None:
    """Make kombu use the corrected transport for `amqp://` and `amqps://` URLs."""
    TRANSPORT_ALIASES.update(
        amqp="shared.messaging.amqp_transport:Transport",
        amqps="shared.messaging.amqp_transport:SecureTransport",
    )


class Channel(pyamqp.Channel):
    """kombu's channel, with a time limit on confirmations."""

    def basic_publish_confirm(self, *args: Any, **kwargs: Any) -> Any:
        """Publish and wait for the broker's confirmation.

        Raises RecoverableConnectionError if it takes longer than CONFIRM_SECONDS.
        """
        connection = self.connection
        # Set a limit, because by default py-amqp waits without one.
        kwargs["confirm_timeout"] = kwargs.get("confirm_timeout") or CONFIRM_SECONDS
        try:
            return super().basic_publish_confirm(*args, **kwargs)
        except TimeoutError:
            # Call collect() and not close(), which would wait for the broker again.
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
    """The same over TLS. kombu checks no host name, and its URLs cannot name a certificate authority."""

    Connection = Connection

    def establish_connection(self) -> Any:
        """Connect only if the server's certificate is valid for the host in the URL."""
        client: Any = self.client
        client.ssl = tls_options(client.ssl, client.hostname)
        return super().establish_connection()


def tls_options(asked: Any, host: str) -> dict[str, Any]:
    """Return py-amqp's TLS options for a URL's `ssl_ca_certs`, `ssl_certfile` and `ssl_keyfile`."""
    given = (
        {name.removeprefix("ssl_"): value for name, value in asked.items()} if isinstance(asked, dict) else {}
    )
    given.pop(
        "check_hostname", None
    )  # py-amqp has no such option: it checks the name if `server_hostname` is set
    return {"cert_reqs": ssl.CERT_REQUIRED, "server_hostname": host} | given
