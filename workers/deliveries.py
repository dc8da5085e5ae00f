"""Handlers of the outbox's jobs, and the channels through which each kind of message goes."""

from __future__ import annotations

import threading
from functools import cached_property
from typing import Any

from celery import Celery
from celery.signals import worker_shutting_down

from shared.deliveries.courier import Courier
from shared.deliveries.jobs import PurgeDeliveries, SendDeliveries
from shared.deliveries.purge import purge_deliveries
from shared.identity.encryption import Encryption
from shared.media import notifications
from shared.media.notification_channel import DistributionChannel
from shared.media.notification_jobs import NoticeExpiredMedia
from workers.handling import Depot, bind, bind_sweep


class Dispatch:
    """The courier of this process; made with the first message, in the process that sends it."""

    def __init__(self, depot: Depot) -> None:
        """Share the settings and the database of the process."""
        self._depot = depot
        self._lock = threading.Lock()

    @cached_property
    def _courier(self) -> Courier:
        channels = {notifications.KIND: DistributionChannel(Encryption(self._depot.settings))}
        return Courier(self._depot.database, self._depot.settings, channels)

    def send_due(self) -> int:
        """Send what is due."""
        with self._lock:
            courier = self._courier
        return courier.send_due()

    def stop(self, **_: Any) -> None:
        """Let the worker end when what is under way has ended."""
        if "_courier" in self.__dict__:
            self._courier.stop()


def bind_deliveries(app: Celery, depot: Depot) -> None:
    """Bind the outbox's jobs, and those of the notifications that it carries."""
    dispatch = Dispatch(depot)
    bind(app, SendDeliveries, dispatch.send_due)
    bind_sweep(app, PurgeDeliveries, lambda: purge_deliveries(depot.database))
    bind_sweep(app, NoticeExpiredMedia, lambda: notifications.notice_expired_media(depot.database))
    worker_shutting_down.connect(dispatch.stop, weak=False)
