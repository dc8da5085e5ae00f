"""The Celery application of every worker and of beat; which queues a worker serves is its command line's choice."""

from __future__ import annotations

from typing import Any

from celery.signals import worker_ready

from shared import faults
from shared.garbage import spare_what_is_loaded
from shared.jobs import create_celery
from shared.settings import load_settings
from shared.telemetry import configure_logging
from workers.agents import bind_agents
from workers.credits import bind_credits
from workers.deliveries import bind_deliveries
from workers.files import bind_files
from workers.handling import Depot
from workers.identity import bind_identity
from workers.media import bind_media
from workers.models import bind_models
from workers.schedule import SCHEDULE

settings = load_settings()
configure_logging(settings.log_level)
faults.arm(settings.faults)

app = create_celery(settings.redis_url)
app.conf.beat_schedule = SCHEDULE
depot = Depot(settings)
bind_files(app, depot)
bind_identity(app, depot)
bind_credits(app, depot)
bind_models(app, depot)
bind_deliveries(app, depot)
bind_media(app, depot)
bind_agents(app, depot)


@worker_ready.connect(weak=False)
def _settle_in(**_: Any) -> None:
    spare_what_is_loaded()
