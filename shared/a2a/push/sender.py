"""Create the sender for the outbox. Notifications use the channel of their kind; other deliveries are sent unchanged.

Links to the files in an update are created when the update is sent.
"""

from shared.a2a.file_links import FileLinks
from shared.a2a.push.distribution_updates import link_files
from shared.db.database import Session
from shared.deliveries import organization_endpoints
from shared.deliveries.outbox import SendDeliveries
from shared.deliveries.sender import Sender
from shared.encryption import Encryption
from shared.media.importing import import_notifications
from shared.media.notifications.notification_channel import DistributionChannel
from shared.messaging.jobs import Context, handles


@handles(SendDeliveries, every_seconds=5, in_parallel=True)
def _send_due(context: Context) -> int:
    return context.once(make_sender).send_due()


def make_sender(context: Context) -> Sender:
    """Return the sender of a process, with its channels."""
    links = FileLinks(context.database, context.settings)

    def complete(session: Session, body: bytes) -> bytes:
        return link_files(session, links, body)

    encryption = Encryption(context.settings)
    channels = {
        import_notifications.KIND: DistributionChannel(encryption, complete),
        organization_endpoints.KIND: organization_endpoints.make_channel(encryption),
    }
    sender = Sender(context.database, context.settings, channels)
    # On shutdown, deliveries in progress may finish within the time limit of an attempt.
    context.when_stopping(sender.stop)
    return sender
