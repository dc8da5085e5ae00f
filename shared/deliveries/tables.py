"""Tables of the outbox and of organizations' endpoints; mirrored by migrations 0005, 0014, 0027 and 0040.

`due_at` is the time of the next attempt, or the end of the current attempt's lease. A message's body and address are
deleted on delivery. `place` is an ordered message's position in its destination's order; `ordering.py` defines
`is_held`.
"""

import sqlalchemy as sa

from shared.db.schema import created_at, id_column, instant, metadata, one_of, required

organization_endpoints = sa.Table(
    "organization_endpoints",
    metadata,
    sa.Column("organization_id", sa.ForeignKey("organizations.id"), primary_key=True),
    sa.Column("url_encrypted", sa.LargeBinary, nullable=False),
    sa.Column("webhook_secret_encrypted", sa.LargeBinary, nullable=False),
    instant("disabled_at"),
    created_at(),
)

deliveries = sa.Table(
    "deliveries",
    metadata,
    id_column(),
    required("kind", sa.Text),
    required("event", sa.Text),
    required("destination_id", sa.Uuid),
    required("organization_id", sa.Uuid),
    required("state", sa.Text, server_default=sa.text("'Waiting'")),
    sa.Column("address_encrypted", sa.LargeBinary),
    required("content_type", sa.Text),
    sa.Column("body", sa.LargeBinary),
    required("in_flight_limit", sa.SmallInteger),
    required("attempt_limit", sa.SmallInteger),
    required("attempts", sa.Integer, server_default=sa.text("0")),
    required("claims", sa.Integer, server_default=sa.text("0")),
    required("lapses", sa.Integer, server_default=sa.text("0")),
    instant("due_at", nullable=False, server_default=sa.func.now()),
    required("is_ready", sa.Boolean, server_default=sa.text("true")),
    sa.Column("place", sa.BigInteger),
    required("is_held", sa.Boolean, server_default=sa.text("false")),
    sa.Column("sequence", sa.BigInteger),
    sa.Column("last_status", sa.Integer),
    sa.Column("last_code", sa.Text),
    instant("last_attempt_at"),
    instant("ended_at"),
    created_at(),
    one_of("state", "Waiting", "Sending", "Delivered", "Dead"),
    sa.CheckConstraint("(state IN ('Delivered', 'Dead')) = (ended_at IS NOT NULL)", name="ended"),
    # Only a delivered message has no body: its personal data was deleted. A dead message keeps its body for a replay.
    sa.CheckConstraint("(state = 'Delivered') = (body IS NULL)", name="body"),
    sa.CheckConstraint("in_flight_limit BETWEEN 1 AND 16", name="in_flight_limit"),
    sa.CheckConstraint("attempt_limit BETWEEN 1 AND 10", name="attempt_limit"),
    sa.Index("ix_deliveries_destination_id_id", "destination_id", "id"),
    sa.Index(
        "ix_deliveries_ended",
        "destination_id",
        "state",
        "id",
        postgresql_where=sa.text("state IN ('Delivered', 'Dead')"),
    ),
    sa.Index(
        "ix_deliveries_open",
        "destination_id",
        "due_at",
        postgresql_where=sa.text("state IN ('Waiting', 'Sending')"),
    ),
    sa.Index(
        # Begin with the organization, because the claim goes from organization to organization (decision: fair-claims).
        "ix_deliveries_ready",
        "organization_id",
        "destination_id",
        "due_at",
        postgresql_where=sa.text("state = 'Waiting' AND is_ready"),
    ),
    sa.Index(
        "ix_deliveries_later",
        "due_at",
        postgresql_where=sa.text("state = 'Sending' OR (state = 'Waiting' AND NOT is_ready)"),
    ),
    sa.Index("ix_deliveries_due", "due_at", postgresql_where=sa.text("state IN ('Waiting', 'Sending')")),
    sa.Index("ix_deliveries_sending", "destination_id", postgresql_where=sa.text("state = 'Sending'")),
    sa.Index(
        # Make the index unique: if the locking has a defect, an insert fails and messages are not reordered.
        "ix_deliveries_order",
        "destination_id",
        "place",
        unique=True,
        postgresql_where=sa.text("place IS NOT NULL"),
    ),
    sa.Index("ix_deliveries_held", "destination_id", "place", postgresql_where=sa.text("is_held")),
    sa.Index(
        "ix_deliveries_head",
        "destination_id",
        postgresql_where=sa.text("place IS NOT NULL AND NOT is_held AND state IN ('Waiting', 'Sending')"),
    ),
    sa.Index("ix_deliveries_delivered", "ended_at", postgresql_where=sa.text("state = 'Delivered'")),
    sa.Index("ix_deliveries_dead", "ended_at", postgresql_where=sa.text("state = 'Dead'")),
)
