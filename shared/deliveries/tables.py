"""The rows of the outbox, mirrored by migrations 0005 and 0014.

`due_at` is the time of the next attempt, or the end of the lease of the one under way. A message's body and address
are deleted on arrival.
"""

from sqlalchemy import (
    Boolean,
    CheckConstraint,
    Column,
    Index,
    Integer,
    LargeBinary,
    SmallInteger,
    Table,
    Text,
    Uuid,
    func,
    text,
)

from shared.schema import created_at, id_column, instant, metadata

deliveries = Table(
    "deliveries",
    metadata,
    id_column(),
    Column("kind", Text, nullable=False),
    Column("event", Text, nullable=False),
    Column("destination_id", Uuid, nullable=False),
    Column("organization_id", Uuid, nullable=False),
    Column("state", Text, nullable=False, server_default=text("'Waiting'")),
    Column("address_encrypted", LargeBinary),
    Column("content_type", Text, nullable=False),
    Column("body", LargeBinary),
    Column("in_flight_limit", SmallInteger, nullable=False),
    Column("attempt_limit", SmallInteger, nullable=False),
    Column("attempts", Integer, nullable=False, server_default=text("0")),
    Column("claims", Integer, nullable=False, server_default=text("0")),
    Column("lapses", Integer, nullable=False, server_default=text("0")),
    instant("due_at", nullable=False, server_default=func.now()),
    Column("is_ready", Boolean, nullable=False, server_default=text("true")),
    Column("last_status", Integer),
    Column("last_code", Text),
    instant("last_attempt_at"),
    instant("ended_at"),
    created_at(),
    CheckConstraint("state IN ('Waiting', 'Sending', 'Delivered', 'Dead')", name="state"),
    CheckConstraint("(state IN ('Delivered', 'Dead')) = (ended_at IS NOT NULL)", name="ended"),
    CheckConstraint("(state = 'Delivered') = (body IS NULL)", name="body"),
    CheckConstraint("in_flight_limit BETWEEN 1 AND 16", name="in_flight_limit"),
    CheckConstraint("attempt_limit BETWEEN 1 AND 10", name="attempt_limit"),
    Index("ix_deliveries_destination_id_id", "destination_id", "id"),
    Index(
        "ix_deliveries_ended",
        "destination_id",
        "state",
        "id",
        postgresql_where=text("state IN ('Delivered', 'Dead')"),
    ),
    Index(
        "ix_deliveries_open",
        "destination_id",
        "due_at",
        postgresql_where=text("state IN ('Waiting', 'Sending')"),
    ),
    Index(
        "ix_deliveries_ready",
        "organization_id",
        "destination_id",
        "due_at",
        postgresql_where=text("state = 'Waiting' AND is_ready"),
    ),
    Index(
        "ix_deliveries_later",
        "due_at",
        postgresql_where=text("state = 'Sending' OR (state = 'Waiting' AND NOT is_ready)"),
    ),
    Index("ix_deliveries_due", "due_at", postgresql_where=text("state IN ('Waiting', 'Sending')")),
    Index("ix_deliveries_sending", "destination_id", postgresql_where=text("state = 'Sending'")),
    Index("ix_deliveries_delivered", "ended_at", postgresql_where=text("state = 'Delivered'")),
    Index("ix_deliveries_dead", "ended_at", postgresql_where=text("state = 'Dead'")),
)
