"""The Celery application of beat: that of the workers with the schedule, which imports the handlers of all queues."""

from workers.app import app
from workers.schedule import build_schedule

app.conf.beat_schedule = build_schedule()
