"""A process that sends what is due, for tests that kill it: its arguments are a database's address and fault points."""

import sys

from shared import failpoints
from shared.db.database import Database
from tests.shared.deliveries.outbox import sender

if __name__ == "__main__":
    url, points = sys.argv[1:]
    failpoints.arm(points)
    database = Database(url.replace("postgresql://", "postgresql+psycopg2://", 1))
    with sender(database) as one:
        one.send_due()
    database.dispose()
