"""Handlers of the outbox's jobs, and the channels through which each kind of message goes."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from celery import Celery
from celery.signals import worker_shutting_down

from shared.deliveries.jobs import PurgeDeliveries, SendDeliveries
from shared.deliveries.purge import purge_deliveries
from shared.deliveries.sender import Sender
from shared.encryption import Encryption
from shared.media import notifications
from shared.media.notification_channel import DistributionChannel
from shared.media.notification_jobs import NoticeExpiredMedia
from workers.handling import WorkerContext, bind, bind_sweep


class Dispatch:
    """The sender of this process; made with the first message, in the process that sends it."""

    def __init__(self, context: WorkerContext) -> None:
        """Share the settings and the database of the process."""
        self._context = context
        self._lock = threading.Lock()

    @cached_property
    def _sender(self) -> Sender:
        channels = {notifications.KIND: DistributionChannel(Encryption(self._context.settings))}
        return Sender(self._context.database, self._context.settings, channels)

    def send_due(self) -> int:
        """Send what is due."""
        with self._lock:
            sender = self._sender
        return sender.send_due()

    def stop(self, **_: Any) -> None:
        """Let the worker end when what is under way has ended."""
        if "_sender" in self.__dict__:
            self._sender.stop()


def bind_deliveries(app: Celery, context: WorkerContext) -> None:
    """Bind the outbox's jobs, and those of the notifications that it carries."""
    dispatch = Dispatch(context)
    bind(app, SendDeliveries, dispatch.send_due)
    bind_sweep(app, PurgeDeliveries, lambda: purge_deliveries(context.database))
    bind_sweep(app, NoticeExpiredMedia, lambda: notifications.notice_expired_media(context.database))
    worker_shutting_down.connect(dispatch.stop, weak=False)
