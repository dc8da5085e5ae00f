"""The Celery application of beat: the workers' with the schedule, for which the handlers of all queues are imported."""

from workers.app import app
from workers.schedule import build_schedule

app.conf.beat_schedule = build_schedule()
