"""The Celery application of beat: the workers' application and a schedule. Imports the handlers of all queues."""

from workers.app import app
from workers.schedule import build_schedule

app.conf.beat_schedule = build_schedule()
